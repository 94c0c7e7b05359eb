// What every page has: headings are links to their places, commands and texts to keep have a button that copies them, and pictures can
// be enlarged.
const dom = (() => {
  function element(name, properties = {}, ...children) {
    const {dataset = {}, ...plain} = properties;
    const made = Object.assign(document.createElement(name), plain);
    Object.assign(made.dataset, dataset);
    made.append(...children);
    return made;
  }
  const button = (text, act, properties = {}) => element("button", {type: "button", onclick: act, ...properties}, text);
  // Copies a text, without the clipboard of secure pages too; the button says so for a while.
  function copyButton(text, textOf, properties = {}) {
    const own = button(text, async () => {
      const words = textOf(), kept = await navigator.clipboard?.writeText(words).then(() => true, () => false);
      if (!kept) {
        const area = document.body.appendChild(element("textarea", {value: words}));
        area.select();
        document.execCommand("copy");
        area.remove();
        own.focus();
      }
      own.textContent = "copied";
      setTimeout(() => { own.textContent = text; }, 2000);
    }, properties);
    return own;
  }

  for (const head of document.querySelectorAll("main :is(h2, h3):not(:has(a), .hidden)")) {
    const name = head.textContent.trim().toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
    const section = head.matches("h2") && head.closest("section[id]"), free = name && !document.getElementById(name);
    if (!section && !head.id && free) head.id = name;
    const place = section ? section.id : head.id;
    if (place) head.append(element("a", {className: "anchor", href: `#${place}`}, ...head.childNodes));
  }

  // Commands within a sentence too; what a data-file names can be kept as that file.
  const COMMAND = /^(make |\.venv\/bin\/|snakemake |python3? )/;
  for (const one of document.querySelectorAll("main pre, main code, header code, main textarea, aside code")) {
    const text = (one.value ?? one.textContent).trim(), whole = one.matches("pre, textarea, .command");
    if (one.closest("pre, summary, a, button, label, [hidden]") && !one.matches("pre") || !whole && !COMMAND.test(text)) continue;
    const words = one.matches(".command") ? text.replace(/\s+/g, " ") : text;
    const copy = copyButton("copy", () => words, {className: "copies", ariaLabel: `copy ${one.ariaLabel ?? words.slice(0, 60)}`});
    const name = one.dataset.file, file = name && element("a", {className: "copies", download: name}, `keep as ${name}`);
    if (file) file.href = URL.createObjectURL(new Blob([`${text}\n`], {type: "text/plain"}));
    one.after(" ", copy, ...file ? [" ", file] : []);
  }

  // A group of pictures has a button that enlarges its first one; a picture that is pressed is enlarged itself. Arrow keys go on.
  const PICTURES = "img, i[role=img]", GROUPS = ".answer, .gallery, .samples, figure, .frames";
  const large = element("dialog", {className: "large"});
  let group = [], at = 0;
  const show = step => {
    at = (at + step + group.length) % group.length;
    const picture = group[at].cloneNode(), words = [picture.alt || picture.ariaLabel, picture.title].filter(Boolean).join(": ");
    large.ariaLabel = words || "A picture";
    large.replaceChildren(picture, element("p", {}, words),
      element("p", {className: "controls"}, ...group.length > 1 ? [button("previous", () => show(-1)), button("next", () => show(1))] : [],
        button("close", () => large.close())));
  };
  const open = (pictures, first) => {
    [group, at] = [pictures, first];
    (group[at].closest("[style*=--sheet]") ?? document.body).append(large);
    show(0);
    large.showModal();
  };
  large.addEventListener("click", event => { if (event.target === large) large.close(); });
  large.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step) show(step);
  });
  for (const box of document.querySelectorAll(GROUPS)) {
    const own = [...box.querySelectorAll(PICTURES)].filter(one => !one.closest("a, button, .chart, .alike"));
    if (box.parentElement.closest(GROUPS) || !own.length) continue;
    box.classList.add("enlarges");
    own.forEach((one, number) => one.addEventListener("click", () => open(own, number)));
    box.after(element("div", {className: "controls saves"}, button(own.length > 1 ? "enlarge the pictures" : "enlarge", () => open(own, 0))));
  }
  return {element, button, copyButton};
})();
