// Charts are saved as SVG and PNG in the colours of paper, and their numbers as CSV. charts.js saves its own with this; a chart
// that is HTML, an element with data-save, its title, gets a menu here, and is drawn as an SVG from what the browser shows.
const saving = (() => {
  const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-size",
    "vector-effect"];
  const MARGIN = 16;
  const SIDES = ["Top", "Right", "Bottom", "Left"];
  const LEFT_OUT = ".controls, .hidden, script, input, select, button";
  const pen = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d", {willReadFrequently: true});

  const svg = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const short = value => Math.round(100 * value) / 100;

  // A CSS colour as {paint, opacity}: programs that read SVG know no color-mix() and no color().
  const painted = colour => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
    return {paint: `rgb(${red}, ${green}, ${blue})`, opacity: short(alpha / 255)};
  };

  // A copy of an SVG with the styles that it has here.
  const styled = original => {
    const copy = original.cloneNode(true);
    const ones = [...original.querySelectorAll("*")];
    copy.querySelectorAll("*").forEach((one, at) => {
      const style = getComputedStyle(ones[at]);
      STYLES.forEach(name => one.setAttribute(name, style.getPropertyValue(name)));
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

  // The background and the borders of an element.
  const boxes = (style, {left, top, width, height}) => {
    const found = [];
    const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, height / 2);
    const fill = painted(style.backgroundColor);
    const borders = SIDES.map(side => ({size: parseFloat(style[`border${side}Width`]), dashed: style[`border${side}Style`] === "dashed",
      ...painted(style[`border${side}Color`])})).map(one => one.opacity ? one : {...one, size: 0});
    if (fill.opacity && width && height) {
      found.push(svg("rect", {x: short(left), y: short(top), width: short(width), height: short(height), rx: short(radius),
        fill: fill.paint, "fill-opacity": fill.opacity}));
    }
    const [{size, paint}] = borders;
    if (size && borders.every(one => one.size === size)) {
      return [...found, svg("rect", {x: short(left + size / 2), y: short(top + size / 2), width: short(width - size),
        height: short(height - size), rx: short(Math.max(0, radius - size / 2)), fill: "none", stroke: paint, "stroke-width": size})];
    }
    const [right, bottom] = [left + width, top + height];
    const ends = [[left, top, right, top], [right, top, right, bottom], [left, bottom, right, bottom], [left, top, left, bottom]];
    const lines = ends.map(([x1, y1, x2, y2], at) => svg("line", {x1: short(x1), y1: short(y1), x2: short(x2), y2: short(y2),
      stroke: borders[at].paint, "stroke-width": borders[at].size, ...borders[at].dashed && {"stroke-dasharray": "4 3"}}));
    return [...found, ...lines.filter((_, at) => borders[at].size)];
  };

  // The lines of a text, each at the place of its first word.
  const texts = (node, origin) => {
    const style = getComputedStyle(node.parentElement);
    const range = document.createRange();
    const lines = [];
    const upright = style.writingMode.startsWith("vertical");   // these texts are read from below
    for (const {0: word, index} of node.data.matchAll(/\S+/g)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const place = range.getBoundingClientRect();
      const line = lines.at(-1);
      if (line && (upright || Math.abs(line.top - place.top) < 2)) Object.assign(line, {text: `${line.text} ${word}`, right: place.right});
      else if (place.width) lines.push({text: word, left: place.left, right: place.right, top: place.top, bottom: place.bottom});
    }
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const {fontBoundingBoxAscent: ascent, fontBoundingBoxDescent: descent} = pen.measureText("x");
    const middle = (ascent - descent) / 2;
    const {paint, opacity} = painted(style.color);
    const [anchor, edge] = {right: ["end", "right"], end: ["end", "right"]}[style.textAlign] ?? ["start", "left"];
    return lines.map(line => svg("text", {
      ...upright ? {transform: `translate(${short((line.left + line.right) / 2 - origin.left + middle)} ${short(line.bottom - origin.top)}) rotate(-90)`}
        : {x: short(line[edge] - origin.left), y: short((line.top + line.bottom) / 2 - origin.top + middle), "text-anchor": anchor},
      "font-size": parseFloat(style.fontSize), "font-weight": style.fontWeight, "font-family": style.fontFamily, fill: paint,
      "fill-opacity": opacity}, line.text));
  };

  const shapes = (node, origin) => {
    if (node.nodeType === Node.TEXT_NODE) return texts(node, origin);
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches(LEFT_OUT) || !node.checkVisibility()) return [];
    const {left, top, width, height} = node.getBoundingClientRect();
    const place = {left: left - origin.left, top: top - origin.top, width, height};
    if (node.matches("img")) return [svg("image", {href: node.src, x: short(place.left), y: short(place.top), width: short(width), height: short(height)})];
    if (node.matches("svg")) {
      const copy = styled(node);
      for (const [key, value] of Object.entries({x: place.left, y: place.top, width, height})) copy.setAttribute(key, short(value));
      return [copy];
    }
    const style = getComputedStyle(node);
    const found = [...boxes(style, place), ...[...node.childNodes].flatMap(child => shapes(child, origin))];
    return style.opacity === "1" ? found : [svg("g", {opacity: style.opacity}, ...found)];
  };

  const drawn = element => onPaper(element, style => {
    const place = element.getBoundingClientRect();
    return file(shapes(element, place), place.width, place.height, element.dataset.save, style);
  });

  const csv = rows => {
    const cell = value => /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value ?? "";
    return rows.map(row => row.map(cell).join(",")).join("\n") + "\n";
  };

  const download = (blob, name) => {
    const link = Object.assign(document.createElement("a"), {href: URL.createObjectURL(blob), download: name});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

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
      CSV: async () => new Blob([of.csv()], {type: "text/csv"}),
    };
    const box = Object.assign(document.createElement("div"), {className: "save"});
    const button = (text, act) => {
      const one = Object.assign(document.createElement("button"), {type: "button", textContent: text});
      one.addEventListener("click", act);
      return one;
    };
    const opener = button("save", () => open(formats.hidden));
    const formats = Object.assign(document.createElement("div"), {className: "formats"});
    const open = shown => {
      formats.hidden = !shown;
      opener.setAttribute("aria-expanded", shown);
    };
    opener.setAttribute("aria-label", `save ${of.title}`);
    formats.setAttribute("role", "group");
    formats.setAttribute("aria-label", `save ${of.title} as`);
    formats.append(...Object.keys(FORMATS).map(format => button(format, async () => {
      open(false);
      const name = of.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
      download(await FORMATS[format](), `${name}.${format.toLowerCase()}`);
    })));
    box.addEventListener("keydown", event => {
      if (event.key !== "Escape" || formats.hidden) return;
      open(false);
      opener.focus();
    });
    box.addEventListener("focusout", event => {
      if (!box.contains(event.relatedTarget)) open(false);
    });
    open(false);
    box.append(opener, formats);
    return box;
  };

  for (const chart of document.querySelectorAll("[data-save]")) {
    const rows = () => [chart.dataset.head, ...[...chart.querySelectorAll("[data-row]")].map(one => one.dataset.row)].map(JSON.parse);
    const bar = Object.assign(document.createElement("div"), {className: "controls saves"});
    bar.append(menu({title: chart.dataset.save, svg: () => drawn(chart), csv: () => csv(rows())}));
    (chart.closest(".wide") ?? chart).after(bar);
  }
  return {menu, styled, onPaper, file, csv, svg};
})();
