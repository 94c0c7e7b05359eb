// Asks every two seconds how far the training is, and draws it.
const $ = id => document.getElementById(id);

function draw({steps, losses}) {
  const heights = losses.map(loss => Math.log10(Math.max(loss, 1e-12)));
  const [low, high] = [Math.min(...heights), Math.max(...heights)];
  const place = (step, at) => [100 * step / steps.at(-1), 98 - 96 * (heights[at] - low) / (high - low || 1)];
  $("curve").setAttribute("d", steps.length ? `M${steps.map((step, at) => place(step, at).join(" ")).join("L")}` : "");
  $("top").textContent = steps.length ? Math.max(...losses).toPrecision(3) : "";
  $("bottom").textContent = steps.length ? Math.min(...losses).toPrecision(3) : "";
}

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
        for (const text of [`${one.epoch} of ${one.of}`, one.loss, one.accuracy === null ? "–" : `${(100 * one.accuracy).toFixed(2)} %`,
          one.speed]) {
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
