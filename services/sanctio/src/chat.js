'use strict';
// Texts get into the page as text nodes only.
const base = location.pathname;
const part = id => document.getElementById(id);
const state = text => { part('state').textContent = text; };
const name = decodeURIComponent(base.split('/').pop());
document.title = name;
document.querySelector('h1').textContent = name;

function add(list, message) {
  const line = document.createElement('p'), time = document.createElement('time'), who = document.createElement('b');
  const at = new Date(message.at_ms);
  time.dateTime = at.toISOString();
  time.textContent = at.toLocaleString() + ' ';
  who.textContent = message.name + ' ';
  line.append(time, who, message.text);
  list.append(line);
}

const said = part('said');
const source = new EventSource(base + '/events' + location.search);
source.onopen = () => state('');
source.onerror = () => state('The gateway does not answer; the page tries again.');
source.onmessage = event => {
  const isAtEnd = said.scrollHeight - said.scrollTop - said.clientHeight < 40;
  add(said, JSON.parse(event.data));
  while (said.children.length > 1000) said.firstChild.remove();
  if (isAtEnd) said.scrollTop = said.scrollHeight;
};

part('say').onsubmit = async event => {
  event.preventDefault();
  const { name, text } = event.target.elements;
  // The id is the same in each attempt, so that none is said twice.
  const id = Date.now().toString(36) + Math.random().toString(36);
  const language = new URLSearchParams(location.search).get('language');
  const body = JSON.stringify({ name: name.value, text: text.value, language, id });
  for (let attempt = 0; attempt < 5; attempt++) {
    try {
      const headers = { 'content-type': 'application/json' };
      const reply = await fetch(base + '/messages', { method: 'POST', headers, body });
      if (reply.ok) text.value = '';
      if (reply.status < 500) return state(reply.ok ? '' : await reply.text());
    } catch { /* no reply */ }
    await new Promise(done => setTimeout(done, 500 << attempt));
  }
  state('This was not said: the gateway does not answer.');
};

let question = new URLSearchParams();
async function find() {
  const reply = await fetch(base + '/messages?' + question);
  if (!reply.ok) return state(await reply.text());
  const { messages, next } = await reply.json();
  for (const message of messages) add(part('found'), message);
  part('more').hidden = next === null;
  question.set('at', next);
}
part('find').onsubmit = event => {
  event.preventDefault();
  const { from, to, words } = event.target.elements;
  question = new URLSearchParams({ words: words.value });
  if (from.value) question.set('from', new Date(from.value).getTime());
  if (to.value) question.set('to', new Date(to.value).getTime());
  part('found').replaceChildren();
  find();
};
part('more').onclick = find;
