// Asks every two seconds how far the training is, and draws it.
const $ = id => document.getElementById(id);

let drawn = "";   // the chart that is shown; it changes with each checkpoint

function draw(chart) {
  if (chart === drawn) return;
  drawCharts($("curves"), () => { $("curves").innerHTML = drawn = chart; });
}

const share = value => value === null ? "–" : `${(100 * value).toFixed(2)} %`;

const seconds = value => value < 60 ? `${value.toFixed(1)} s` : `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
const digits = value => typeof value === "number" ? value.toPrecision(4) : value;

// The epoch, the step and the time, and the loss as the mean of the last epoch and where the curve ends.
function tell(found) {
  const last = found.epochs.at(-1);
  const facts = {
    Epoch: last && `${last.epoch} of ${last.of}`,
    Step: found.steps.length && `${found.steps.at(-1)}${found.of_steps ? ` of ${found.of_steps}` : ""}`,
    "Time of the epochs": found.seconds && seconds(found.seconds),
    "Loss, mean of the last epoch": last && digits(last.loss),
    "Loss, last": found.losses.length && digits(found.losses.at(-1) ?? "not a number"),
  };
  $("facts").replaceChildren(...Object.entries(facts).filter(([, text]) => text).map(([name, text]) => {
    const fact = document.createElement("div");
    fact.append(Object.assign(document.createElement("dt"), {textContent: name}),
      Object.assign(document.createElement("dd"), {className: "num", textContent: text}));
    return fact;
  }));
}

// A menu of the trainings, where more than one runs.
function offer(found) {
  const running = found.running ?? [];
  const others = running.filter(one => one.version !== found.version);
  $("several").hidden = !others.length;
  const key = JSON.stringify([running, found.version]);
  if ($("which").dataset.key === key) return;
  $("which").dataset.key = key;
  $("which").replaceChildren(...[{version: found.version, network: found.network}, ...others].map(one =>
    new Option(`${one.network} ${one.version}`.trim(), one.version)));
}
$("which").addEventListener("change", look);

async function look() {
  try {
    const version = $("several").hidden ? "" : $("which").value;
    const found = await (await fetch(version ? `/state/${version}` : "/state")).json();
    if (found) {
      const last = found.epochs.at(-1);
      $("now").textContent = `${found.network ? `${found.network}, training` : "Training"} ${found.version}${found.done ? " has ended" : ""}${
        last ? `: epoch ${last.epoch} of ${last.of}, loss ${last.loss}` : `: ${found.last || "it begins"}`}.`;
      offer(found);
      tell(found);
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
