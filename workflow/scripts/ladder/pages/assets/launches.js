// The launches of a timeline: the mouse, the finger and the arrow keys show what each is, and charts.js its mark under the roofs,
// where the rung stands that has the focus.
for (const table of document.querySelectorAll(".timeline")) {
  const tip = table.parentElement.appendChild(Object.assign(document.createElement("output"), {className: "tip", hidden: true}));
  const show = launch => {
    tip.hidden = !launch;
    if (!launch) return;
    tip.textContent = launch.ariaLabel;
    const [box, place, half] = [tip.parentElement.getBoundingClientRect(), launch.getBoundingClientRect(), tip.offsetWidth / 2];
    const middle = place.left - box.left + place.width / 2;
    tip.style.left = `${Math.min(Math.max(middle, half), box.width - half)}px`;
    tip.style.top = `${place.top - box.top - tip.offsetHeight - 6}px`;
  };
  table.addEventListener("focusin", event => { event.target.closest("tr").querySelector("input").checked = true; });
  for (const kind of ["pointerover", "focusin"]) table.addEventListener(kind, event => show(event.target.closest("[data-run]")));
  for (const kind of ["pointerleave", "focusout"]) table.addEventListener(kind, () => show(null));
  table.addEventListener("keydown", event => {
    const way = {ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling"}[event.key];
    const launch = event.target.closest("[data-run]"), next = way && launch?.[way];
    if (!next) return;
    event.preventDefault();
    [launch.tabIndex, next.tabIndex] = [-1, 0];
    next.focus();
  });
}
