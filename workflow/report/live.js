// Asks every two seconds how far the training is, and draws it.
const $ = id => document.getElementById(id);

let drawn = "";   // the chart that is shown; it changes with each checkpoint

function draw(chart) {
  if (chart === drawn) return;
  drawCharts($("curves"), () => { $("curves").innerHTML = drawn = chart; });
}

const share = value => value === null ? "–" : `${(100 * value).toFixed(2)} %`;

async function look() {
  try {
    const found = await (await fetch("/state")).json();
    if (found) {
      const last = found.epochs.at(-1);
      $("now").textContent = `${found.network ? `${found.network}, training` : "Training"} ${found.version}${found.done ? " has ended" : ""}${
        last ? `: epoch ${last.epoch} of ${last.of}, loss ${last.loss}` : `: ${found.last || "it begins"}`}.`;
      draw(found.chart);
      $("rows").replaceChildren(...found.epochs.toReversed().map(one => {
        const row = document.createElement("tr");
        for (const text of [`${one.epoch} of ${one.of}`, one.loss, share(one.accuracy), one.validation_loss ?? "–",
          share(one.validation_accuracy), one.speed]) {
          const cell = row.insertCell();
          cell.textContent = text;
          if (!cell.cellIndex) continue;
          cell.className = "right";
          cell.dataset.label = $("epochs-table").tHead.rows[0].cells[cell.cellIndex].textContent;   // on a phone rows are cards
        }
        return row;
      }));
    }
  } catch {
    $("now").textContent = "This page’s server has ended: make watch";
  }
}

look();
setInterval(look, 2000);
