// Sends dropped, chosen, pasted and drawn pictures to /answer and shows the predictions.
const list = document.getElementById("list");
const drop = document.getElementById("drop");
const canvas = document.getElementById("canvas");

function place() {
  document.getElementById("none").hidden = true;
  const box = document.createElement("div");
  list.prepend(box);
  return box;
}

function say(box, text, kind) {
  const line = document.createElement("p");
  line.className = kind;
  line.textContent = text;
  box.replaceChildren(line);
}

// Shows the prediction for a picture in `box`, unless `current` returns false when it arrives.
async function ask(box, picture, name, current = () => true) {
  if (picture.size > Number(drop.dataset.mostBytes)) {
    say(box, `${name}: the file is too large`, "problem");
    return;
  }
  if (!box.children.length) say(box, `${name} …`, "waiting");
  let text, answered;
  try {
    const response = await fetch(`/answer?name=${encodeURIComponent(name)}`,
      {method: "POST", body: picture, headers: {"Content-Type": "application/octet-stream"}});
    text = await response.text();
    answered = response.ok;
  } catch {
    text = "the demo does not answer; is it still running?";
  }
  if (!current()) return;
  if (answered) box.innerHTML = text;
  if (answered) box.scrollIntoView({block: "nearest"});
  else say(box, `${name}: ${text}`, "problem");
}

async function askAll(files) {
  for (const [box, file] of [...files].map(file => [place(), file])) await ask(box, file, file.name || "pasted picture");
}

const input = document.getElementById("files");
input.addEventListener("change", () => { askAll(input.files); input.value = ""; });
document.addEventListener("paste", event => askAll(event.clipboardData.files));
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, event => {
    event.preventDefault();
    drop.classList.toggle("over", kind === "dragover");
  });
}
document.addEventListener("drop", event => {
  if (event.dataTransfer.files.length) askAll(event.dataTransfer.files);
  else say(place(), "That was not a file: save the picture first, then drop the file.", "problem");
});

if (canvas) {
  const pen = canvas.getContext("2d");
  let box = null, last = null, drawings = 0;
  const at = event => [event.offsetX, event.offsetY].map(value => value * canvas.width / canvas.clientWidth);
  const clear = () => {
    pen.fillStyle = "white";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    drawings += 1;
    box = null;
  };
  const line = event => {
    pen.beginPath();
    pen.moveTo(...last);
    pen.lineTo(...(last = at(event)));
    pen.stroke();
  };
  Object.assign(pen, {lineWidth: 20, lineCap: "round", lineJoin: "round", strokeStyle: "black"});
  clear();
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    last = at(event);
    line(event);
  });
  canvas.addEventListener("pointermove", event => { if (last) line(event); });
  for (const kind of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(kind, () => {
      if (!last) return;
      last = null;
      const number = drawings += 1;
      box ??= place();
      const target = box;
      canvas.toBlob(drawing => ask(target, drawing, "your drawing", () => number === drawings || target !== box));
    });
  }
  document.getElementById("clear").addEventListener("click", clear);
}
