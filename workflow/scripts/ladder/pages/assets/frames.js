// A list of frames becomes one picture with a slider, which begins at the last.
for (const list of document.querySelectorAll(".frames")) {
  const frames = [...list.children];
  const slider = dom.element("input", {type: "range", min: 0, max: frames.length - 1, ariaLabel: list.dataset.label});
  const show = () => frames.forEach((frame, at) => frame.classList.toggle("off", at !== Number(slider.value)));
  slider.value = frames.length - 1;
  slider.addEventListener("input", () => {
    slider.setAttribute("aria-valuetext", frames[slider.value].textContent);
    show();
  });
  list.before(slider);
  list.classList.add("one");
  show();
}
