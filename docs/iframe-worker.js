// Search where the site is opened as files: a browser starts no worker there, so the worker's program runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.document.write(`<script>postMessage = data => parent.postMessage(data, "*");</script>
                                 <script src="${address}"></script>`);
      this.scope.document.close();
      this.loaded = new Promise(resolve => { this.scope.onload = resolve; });
      addEventListener("message", ({data, source}) => {
        if (source === this.scope) this.dispatchEvent(new MessageEvent("message", {data}));
      });
    }

    async postMessage(data) {
      await this.loaded;
      this.scope.dispatchEvent(new MessageEvent("message", {data}));
    }
  };
}
