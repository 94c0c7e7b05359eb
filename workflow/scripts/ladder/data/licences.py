"""What the authors of each data set allow, in words for a person who takes results elsewhere."""

LICENCES = {
    **dict.fromkeys(
        ("mnist_small", "mnist"),
        "MNIST, by Yann LeCun, Corinna Cortes and Christopher Burges: CC BY-SA 3.0",
    ),
    "digits": "Optical Recognition of Handwritten Digits, by E. Alpaydin and C. Kaynak, UCI: CC BY 4.0",
    "fashion_mnist": "Fashion-MNIST, by Zalando SE: MIT",
    "svhn": "Street View House Numbers, by Netzer et al. (2011): for non-commercial use only",
    **dict.fromkeys(
        ("cifar10", "cifar100"),
        "by Alex Krizhevsky (2009), of photographs from the web: its authors state no "
        "licence, and the rights to the photographs are their owners'",
    ),
    "folder": "pictures of whoever made this model, who alone can say what their licence is",
}
