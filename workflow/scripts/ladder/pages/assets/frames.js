// A list of frames becomes one picture with a slider, which begins at the last.
for (const list of document.querySelectorAll(".frames")) {
  const frames = [...list.children];
  const slider = Object.assign(document.createElement("input"), {type: "range", min: 0, max: frames.length - 1});
  const show = () => frames.forEach((frame, at) => frame.classList.toggle("off", at !== Number(slider.value)));
  slider.value = frames.length - 1;
  slider.setAttribute("aria-label", list.dataset.label);
  slider.addEventListener("input", () => {
    slider.setAttribute("aria-valuetext", frames[slider.value].textContent);
    show();
  });
  list.before(slider);
  list.classList.add("one");
  show();
}
