// Upload, new directories, renaming and removal on the page of a directory. Reading works without this script.
"use strict";

const main = document.querySelector("main");
const progress = document.getElementById("progress");

/** The address of a name in this directory. */
const at = (name) => new URL("./" + encodeURIComponent(name), location.href);

/** A line about one action; returns functions that update it. */
function line(text) {
  const row = progress.appendChild(document.createElement("div"));
  const label = row.appendChild(document.createElement("span"));
  label.textContent = text;
  const bar = row.appendChild(document.createElement("progress"));
  return {
    part: (share) => { bar.value = share; },
    done: () => row.remove(),
    failed: (reason) => {
      bar.remove();
      label.className = "bad";
      label.textContent = `${text}: ${reason}`;
      const close = row.appendChild(document.createElement("button"));
      close.textContent = "Close";
      close.onclick = () => row.remove();
    },
  };
}

/** The words for a status of the server. */
function reason(status) {
  const words = {
    0: "the server does not answer", 401: "log in again", 403: "this needs the right to write here",
    404: "it is gone", 405: "there is something of this name already", 409: "the directory is gone",
    412: "there is something of this name already", 413: "it is too large", 423: "another user has locked it",
    507: "the disk is full",
  };
  return words[status] || `the server says ${status}`;
}

/** Sends a request; resolves with its status. `part` hears of the share that has been sent. */
function send(method, url, fields = {}, body = null, part = () => {}) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    for (const [name, value] of Object.entries(fields)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => { if (event.lengthComputable) part(event.loaded / event.total); };
    request.onloadend = () => resolve(request.status);
    request.send(body);
  });
}

async function act(text, method, url, fields, body) {
  const shown = line(text);
  const status = await send(method, url, fields, body, shown.part);
  if (status >= 200 && status < 300) {
    shown.done();
    return true;
  }
  shown.failed(reason(status));
  return false;
}

async function upload(files) {
  let all = true;
  for (const file of files) {
    let fields = { "If-None-Match": "*" };
    const known = document.querySelector(`tr[data-name="${CSS.escape(file.name)}"]`);
    if (known) {
      if (!confirm(`Replace ${file.name}?`)) continue;
      fields = {};
    }
    all = await act(`Uploading ${file.name}`, "PUT", at(file.name), fields, file) && all;
  }
  if (all) location.reload();
}

async function change(text, method, url, fields) {
  if (await act(text, method, url, fields)) location.reload();
}

function button(cell, text, label, action) {
  const made = cell.appendChild(document.createElement("button"));
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", label);
  made.onclick = action;
}

if (main.hasAttribute("data-write")) {
  document.getElementById("tools").hidden = false;
  const pick = document.getElementById("pick");
  pick.onchange = () => upload([...pick.files]);
  document.getElementById("new").onclick = () => {
    const name = prompt("Name of the new directory");
    if (name) change(`Making ${name}`, "MKCOL", at(name));
  };
  main.ondragover = (event) => { event.preventDefault(); main.classList.add("drop"); };
  main.ondragleave = () => main.classList.remove("drop");
  main.ondrop = (event) => {
    event.preventDefault();
    main.classList.remove("drop");
    upload([...event.dataTransfer.files]);
  };
  for (const row of document.querySelectorAll("tr[data-name]")) {
    const name = row.dataset.name;
    const cell = row.querySelector(".do");
    // Not made of the name: a name need not be text.
    const url = row.querySelector("a").href;
    button(cell, "Rename", `Rename ${name}`, () => {
      const to = prompt("New name, or a path to move it to", name);
      if (!to || to === name) return;
      const target = to.includes("/") ? new URL(to.split("/").map(encodeURIComponent).join("/"), location.href) : at(to);
      change(`Renaming ${name}`, "MOVE", url, { Destination: target.href, Overwrite: "F" });
    });
    button(cell, "Delete", `Delete ${name}`, () => {
      if (confirm(`Delete ${name}? This cannot be undone.`)) change(`Deleting ${name}`, "DELETE", url);
    });
  }
}
