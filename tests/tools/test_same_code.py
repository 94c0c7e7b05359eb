"""What of a kernel's PTX is compared."""

import same_code

FIRST = """.visible .entry first(
	.param .u64 first_param_0
)
{
$L__BB0_1:
	ret;
}
"""
SECOND = FIRST.replace("first", "second").replace("BB0", "BB1")


def code(ptx, entry):
    return same_code.nameless(same_code.only(ptx, entry))


def test_a_kernel_in_another_file_keeps_its_code_and_a_changed_one_does_not():
    both = f".version 8.7\n\n// .globl first\n{FIRST}// .globl second\n{SECOND}"
    alone = f".version 8.7\n// .globl second\n{SECOND.replace('BB1', 'BB0')}\n"
    assert code(alone, "second") == code(both, "second") != code(both, "first")
    assert code(alone.replace("ret;", "trap;"), "second") != code(alone, "second")


def test_a_digest_that_became_two_or_is_of_fewer_kernels_is_not_carried():
    pairs = [("a", "b"), ("a", "b"), ("c", "d"), ("c", "e"), ("f 3", "g 3"), ("h 5", "i 3")]
    assert same_code.successors(pairs) == {"a": "b", "f": "g"}
