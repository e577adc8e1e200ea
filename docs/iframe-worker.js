// Search runs in a worker, and browsers refuse workers to pages that are opened from a folder. There, a hidden frame of the same
// page takes the worker's place. The generators would load such a script from another host; this one is part of the site.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = this.onerror = null
      const frame = document.createElement("iframe")
      frame.hidden = true
      const insert = () => document.body.append(frame)
      this.ready = new Promise(resolve => {
        frame.addEventListener("load", () => resolve(this.start(frame.contentWindow, url)), { once: true })
        if (document.body) insert()
        else document.addEventListener("DOMContentLoaded", insert)
      })
      this.frame = frame
    }

    // Make the frame's window look like the inside of a worker, and load the worker's script into it.
    start(inside, url) {
      const load = source => new Promise((resolve, reject) => {
        const script = inside.document.createElement("script")
        script.src = source
        script.onload = resolve
        script.onerror = () => reject(new Error(`cannot load ${source}`))
        inside.document.head.append(script)
      })
      inside.postMessage = data => this.tell("message", { data })
      inside.importScripts = (...sources) => sources.reduce((done, each) => done.then(() => load(each)), Promise.resolve())
      return load(url).then(() => inside, error => this.tell("error", { error }))
    }

    tell(type, fields) {
      const event = new MessageEvent(type, fields)
      this[`on${type}`]?.(event)
      this.dispatchEvent(event)
    }

    postMessage(data) {
      this.ready.then(inside => inside?.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker = FrameWorker
}
