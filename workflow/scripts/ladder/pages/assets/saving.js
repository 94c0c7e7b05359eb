// Charts are saved as SVG and PNG in the colours of paper, and their numbers as CSV: those of charts.js, and bars and tables,
// elements with data-save, their title.
const saving = (() => {
  const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-size",
    "vector-effect"];
  const MARGIN = 16;
  const svg = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const short = value => Math.round(100 * value) / 100;

  // A mixed colour as other programs know it.
  const flat = colour => colour.replace(/^color\(srgb (\S+) (\S+) ([^ )]+).*/, (_, ...parts) =>
    `rgb(${parts.slice(0, 3).map(part => Math.round(255 * part)).join(", ")})`);

  // A copy of an SVG with the styles that it has here.
  const styled = original => {
    const copy = original.cloneNode(true);
    const ones = [...original.querySelectorAll("*")];
    copy.querySelectorAll("*").forEach((one, at) => {
      const style = getComputedStyle(ones[at]);
      STYLES.forEach(name => one.setAttribute(name, flat(style.getPropertyValue(name))));
    });
    return copy;
  };

  // What `draw` gives while the element has the colours of paper.
  const onPaper = (element, draw) => {
    element.classList.add("light");
    try {
      return draw(getComputedStyle(element));
    } finally {
      element.classList.remove("light");
    }
  };

  // The text of an SVG file: the content, width by height, on paper below its title.
  const file = (content, width, height, title, style) => {
    const whole = svg("svg", {
      viewBox: `${-MARGIN} ${-2 * MARGIN} ${short(width + 2 * MARGIN)} ${short(height + 3 * MARGIN)}`,
      width: short(width + 2 * MARGIN), height: short(height + 3 * MARGIN), "font-family": "Helvetica, Arial, sans-serif",
    });
    whole.append(
      svg("rect", {x: -MARGIN, y: -2 * MARGIN, width: short(width + 2 * MARGIN), height: short(height + 3 * MARGIN),
        fill: style.getPropertyValue("--paper")}),
      ...content,
      svg("text", {x: 0, y: -12, "font-size": 15, "font-weight": 600, fill: style.getPropertyValue("--ink")}, title));
    return new XMLSerializer().serializeToString(whole);
  };

  // What is seen of an element made of HTML: the backgrounds of its parts, and each word at its place.
  const seen = box => {
    const found = [], range = document.createRange(), origin = box.getBoundingClientRect();
    const parts = document.createTreeWalker(box, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
    while (parts.nextNode()) {
      const node = parts.currentNode, own = node.data ? node.parentElement : node, style = getComputedStyle(own);
      if (!own.checkVisibility() || own.closest(".hidden") || own.ownerSVGElement) continue;
      const at = ({left, top, width, height}) => [left - origin.left, top - origin.top, width, height].map(short);
      if (node === own) {
        const [x, y, width, height] = at(own.getBoundingClientRect());
        const drawn = own.matches("svg") ? styled(own) : svg("rect", {fill: flat(style.backgroundColor)});
        for (const [key, value] of Object.entries({x, y, width, height})) drawn.setAttribute(key, value);
        found.push(drawn);
      }
      for (const {0: word, index} of node.data?.matchAll(/\S+/g) ?? []) {
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        const [x, y, width, height] = at(range.getBoundingClientRect()), size = parseFloat(style.fontSize), down = .35 * size;
        const upright = style.writingMode.startsWith("vertical");   // it is read from below
        found.push(svg("text", {"font-size": size, "font-weight": style.fontWeight, fill: flat(style.color), textLength: upright ? height : width,
          transform: upright ? `translate(${short(x + width / 2 + down)} ${short(y + height)}) rotate(-90)` : `translate(${x} ${short(y + height / 2 + down)})`}, word));
      }
    }
    return found;
  };

  const csv = rows => {
    const cell = value => /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value ?? "";
    return rows.map(row => row.map(cell).join(",")).join("\n") + "\n";
  };

  const download = (blob, name) => {
    const link = dom.element("a", {href: URL.createObjectURL(blob), download: name});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  const table = text => new Blob([text], {type: "text/csv"});
  const named = title => title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

  const png = async text => {
    const image = new Image();
    image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), {width: 2 * image.width, height: 2 * image.height});
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise(resolve => canvas.toBlob(resolve));
  };

  // A menu that saves a chart; of: {title, svg: function, csv: function}.
  const menu = of => {
    const FORMATS = {
      SVG: async () => new Blob([of.svg()], {type: "image/svg+xml"}),
      PNG: () => png(of.svg()),
      CSV: async () => table(of.csv()),
    };
    const save = async format => {
      box.open = false;
      download(await FORMATS[format](), `${named(of.title)}.${format.toLowerCase()}`);
    };
    const buttons = Object.keys(FORMATS).map(format => dom.button(format, () => save(format)));
    const box = dom.element("details", {className: "save"}, dom.element("summary", {ariaLabel: `save ${of.title}`}, "save"),
      dom.element("div", {className: "formats", role: "group", ariaLabel: `save ${of.title} as`}, ...buttons));
    box.addEventListener("keydown", event => {
      if (event.key !== "Escape") return;
      box.open = false;
      box.firstChild.focus();
    });
    box.addEventListener("focusout", event => { if (event.relatedTarget && !box.contains(event.relatedTarget)) box.open = false; });
    return box;
  };

  for (const chart of document.querySelectorAll("[data-save]")) {
    const rows = () => [chart.dataset.head, ...[...chart.querySelectorAll("[data-row]")].map(one => one.dataset.row)].map(JSON.parse);
    const title = chart.dataset.save;
    const drawn = () => onPaper(chart, style => file(seen(chart), chart.offsetWidth, chart.offsetHeight, title, style));
    (chart.closest(".wide") ?? chart).after(dom.element("div", {className: "controls saves"}, menu({title, svg: drawn, csv: () => csv(rows())})));
  }
  return {menu, styled, onPaper, file, csv, svg, table, download};
})();
