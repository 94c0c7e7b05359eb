// Two ticked runs give the commands that diff and compare them; any metric can be the column that is shown and sorted by.
const table = document.getElementById("history");
const picked = document.getElementById("picked");
const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

function commands() {
  const boxes = [...table.querySelectorAll(".pick:checked")];
  picked.hidden = !boxes.length;
  if (boxes.length < 2) {
    picked.textContent = "Tick one more run to get the commands that diff and compare the two.";
    return;
  }
  const versions = boxes.map(box => box.value), runs = boxes.map(box => box.dataset.overrides);
  const lines = [`.venv/bin/snakemake results/compare.html --config ${quoted(`compare=[${runs.join(", ")}]`)}`];
  if (boxes.length === 2) lines.unshift(`.venv/bin/snakemake results/diff.html --config 'diff=[${versions.join(",")}]'`);
  const left = [...new Set(boxes.flatMap(box => box.dataset.unsaid.split(" ").filter(Boolean)))];
  picked.replaceChildren(...lines.map(line => {
    const code = document.createElement("code");
    code.className = "command";
    code.textContent = line;
    return code;
  }), left.length ? `Not in the second command, because a report does not keep them as config.yaml has them: ${left.join(", ")}.` : "");
}

const metric = document.getElementById("metric");
function choose() {
  const head = table.querySelector("th.metric");
  (head.querySelector("button") ?? head).textContent = metric.selectedOptions[0].textContent;
  for (const cell of table.querySelectorAll("td.metric")) {
    const [value, text] = JSON.parse(cell.dataset.metrics)[metric.value] ?? ["", "–"];
    cell.dataset.value = value;
    cell.dataset.label = metric.value;
    cell.textContent = text;
  }
}

for (const box of table?.querySelectorAll(".pick") ?? []) {
  box.parentElement.hidden = false;
  box.addEventListener("change", commands);
}
if (metric) {
  metric.closest("[hidden]")?.removeAttribute("hidden");
  metric.addEventListener("change", choose);
}
