// Asks every two seconds how far the training is, and draws it.
const $ = id => document.getElementById(id);

function draw({steps, losses, held_out: held}) {
  const height = loss => Math.log10(Math.max(loss, 1e-12));
  const all = [...losses, ...held.losses];
  const [low, high] = [height(Math.min(...all)), height(Math.max(...all))];
  const place = (step, loss) => [100 * step / steps.at(-1), 98 - 96 * (height(loss) - low) / (high - low || 1)];
  const path = curve => curve.steps.length ? `M${curve.steps.map((step, at) => place(step, curve.losses[at]).join(" ")).join("L")}` : "";
  $("curve").setAttribute("d", path({steps, losses}));
  $("held").setAttribute("d", path(held));
  $("top").textContent = all.length ? Math.max(...all).toPrecision(3) : "";
  $("bottom").textContent = all.length ? Math.min(...all).toPrecision(3) : "";
}

const share = value => value === null ? "–" : `${(100 * value).toFixed(2)} %`;

async function look() {
  try {
    const found = await (await fetch("/state")).json();
    if (found) {
      const last = found.epochs.at(-1);
      $("now").textContent = `Training ${found.version}${found.done ? " has ended" : ""}${
        last ? `: epoch ${last.epoch} of ${last.of}, loss ${last.loss}` : `: ${found.last || "it begins"}`}.`;
      draw(found);
      $("rows").replaceChildren(...found.epochs.toReversed().map(one => {
        const row = document.createElement("tr");
        for (const text of [`${one.epoch} of ${one.of}`, one.loss, share(one.accuracy), one.held_out_loss ?? "–",
          share(one.held_out_accuracy), one.speed]) {
          const cell = row.insertCell();
          cell.textContent = text;
          if (cell.cellIndex) cell.className = "right";
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
