// Pictures without labels: a wall of all pictures of the page; the one that is chosen, with those most like it.
for (const box of document.querySelectorAll(".alike")) {
  const {names, nearest, clusters, columns} = JSON.parse(box.querySelector("script").textContent);
  const make = (name, className, text = "") => Object.assign(document.createElement(name), {className, textContent: text});
  const FEW = 300;   // pictures of the wall at once

  const picture = place => {
    const one = make("i", "");
    one.style.cssText = `--x:${place % columns};--y:${Math.floor(place / columns)}`;
    return one;
  };
  const button = (place, className) => {
    const one = make("button", className);
    one.type = "button";
    one.title = names[place];
    one.setAttribute("aria-label", `Pictures like ${names[place]}`);
    one.append(picture(place));
    one.addEventListener("click", () => choose(place));
    return one;
  };

  const chosen = make("div", "chosen");
  chosen.setAttribute("aria-live", "polite");
  const choose = place => {
    const own = make("div", "own");
    own.append(picture(place), make("b", "", names[place]));
    if (clusters.length) own.append(make("small", "", `cluster ${clusters[place] + 1}`));
    const near = make("ol", "near");
    near.append(...nearest[place].map(other => {
      const item = make("li", "");
      item.append(button(other, ""), make("small", "", names[other].split("/").at(-1)));
      return item;
    }));
    chosen.replaceChildren(own, near);
    for (const one of wall.children) one.setAttribute("aria-pressed", one.title === names[place]);
  };

  // The wall has the pictures whose names hold the words, FEW at once.
  const wall = make("div", "wall");
  const filter = Object.assign(make("input", ""), {type: "search", placeholder: "a part of the name", autocomplete: "off", spellcheck: false});
  const said = make("output", "small");
  const more = Object.assign(make("button", "", "Show more"), {type: "button"});
  let shown = FEW;
  const fill = () => {
    const found = names.map((_, place) => place).filter(place => names[place].toLowerCase().includes(filter.value.toLowerCase()));
    wall.replaceChildren(...found.slice(0, shown).map(place => button(place, "")));
    said.textContent = `${found.length.toLocaleString("en")} pictures`;
    more.hidden = found.length <= shown;
  };
  filter.addEventListener("input", () => {
    shown = FEW;
    fill();
  });
  more.addEventListener("click", () => {
    shown += FEW;
    fill();
  });
  const label = make("label", "", "Find ");
  label.append(filter);
  const line = make("p", "filter");
  line.append(label, said);
  box.replaceChildren(chosen, line, wall, more);
  fill();
  choose(0);
}
