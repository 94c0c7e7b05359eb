// Pictures without labels: a wall of all pictures of the page; the one that is chosen, with those most like it.
for (const box of document.querySelectorAll(".alike")) {
  const {names, nearest, clusters, columns} = JSON.parse(box.querySelector("script").textContent);
  const make = (name, className, text = "") => dom.element(name, {className}, text);
  const FEW = 300;   // pictures of the wall at once

  const picture = place => {
    const one = make("i", "");
    one.style.cssText = `--x:${place % columns};--y:${Math.floor(place / columns)}`;
    return one;
  };
  const button = place => dom.button(picture(place), () => choose(place), {title: names[place], ariaLabel: `Pictures like ${names[place]}`});

  const chosen = make("div", "chosen");
  chosen.setAttribute("aria-live", "polite");
  const choose = place => {
    const own = make("div", "own");
    own.append(picture(place), make("b", "", names[place]));
    if (clusters.length) own.append(make("small", "", `cluster ${clusters[place] + 1}`));
    const near = make("ol", "near");
    near.append(...nearest[place].map(other => {
      const item = make("li", "");
      item.append(button(other), make("small", "", names[other].split("/").at(-1)));
      return item;
    }));
    chosen.replaceChildren(own, near);
    for (const one of wall.children) one.setAttribute("aria-pressed", one.title === names[place]);
  };

  // The wall has the pictures whose names hold the words, FEW at once.
  const wall = make("div", "wall");
  const filter = dom.element("input", {type: "search", placeholder: "a part of the name", autocomplete: "off", spellcheck: false});
  const said = make("output", "small");
  const more = dom.button("Show more", () => {
    shown += FEW;
    fill();
  });
  let shown = FEW;
  const fill = () => {
    const found = names.map((_, place) => place).filter(place => names[place].toLowerCase().includes(filter.value.toLowerCase()));
    wall.replaceChildren(...found.slice(0, shown).map(place => button(place)));
    said.textContent = `${found.length.toLocaleString("en")} pictures`;
    more.hidden = found.length <= shown;
  };
  filter.addEventListener("input", () => {
    shown = FEW;
    fill();
  });
  const line = dom.element("p", {className: "filter"}, dom.element("label", {}, "Find ", filter), said);
  box.replaceChildren(chosen, line, wall, more);
  fill();
  choose(0);
}
