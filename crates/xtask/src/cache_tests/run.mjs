// Runs tests of the suite http-cache-tests against a proxy, and prints one line of JSON for each:
// {"id": …, "kind": …, "result": "passed" | "failed" | "setup" | "dependency", "text": …}.
//
//   node run.mjs SUITE ORIGIN PROXY [ID …]
//
// SUITE is the folder of the suite, ORIGIN the address of its server. PROXY is the address of a forward proxy; the same as ORIGIN, where
// ORIGIN is a reverse proxy. Without IDs all tests run, with them those and what they depend on.
//
// The tests of `Surrogate-Control`, which RFC 9213 has replaced, are made those of `CDN-Cache-Control`, for a reverse proxy. (So are they in the
// suite's later versions, which are not at npm.)
//
// Node's own `fetch` cannot be told to use a proxy without a package, and does more than a test wants (it follows redirects); so this has
// one, of those parts of the interface that the suite uses.
import http from 'node:http'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [folder, origin, proxy, ...ids] = process.argv.slice(2)
const load = file => import(pathToFileURL(path.join(folder, file)))
const { runTests, getResults } = await load('client/runner.mjs')
const suites = (await load('tests/index.mjs')).default
const isReverse = proxy === origin
if (isReverse) {
  const suite = JSON.stringify((await load('tests/surrogate-control.mjs')).default)
  // Its parameters name caches, which RFC 9213 knows nothing of.
  const replaced = suite.replace(/surrogate-control/gi, 'CDN-Cache-Control').replaceAll(';CAPABILITY_TARGET', '')
  suites.push(JSON.parse(replaced.replaceAll('"surrogate-', '"cdn-')))
}

const { hostname, port } = new URL(proxy)
const agent = new http.Agent({ keepAlive: true })

function fetch (url, init = {}) {
  const target = isReverse ? url.slice(origin.length) : url
  const headers = { host: new URL(url).host }
  for (const [name, value] of init.headers || []) {
    const key = name.toLowerCase()
    headers[key] = key in headers ? [headers[key], value].flat() : value
  }
  if (init.body !== undefined) headers['content-length'] = Buffer.byteLength(init.body)
  return new Promise((resolve, reject) => {
    const options = { agent, hostname, port, path: target, method: init.method || 'GET', headers }
    const request = http.request(options, response => {
      const chunks = []
      response.on('data', chunk => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const fields = new Headers()
        for (let at = 0; at < response.rawHeaders.length; at += 2) {
          fields.append(response.rawHeaders[at], response.rawHeaders[at + 1])
        }
        resolve({
          status: response.statusCode,
          statusText: response.statusMessage,
          headers: fields,
          text: async () => Buffer.concat(chunks).toString()
        })
      })
    })
    // A proxy that hangs is a failure of this test, not of all.
    request.setTimeout(60_000, () => request.destroy(new Error('no answer within a minute')))
    request.on('error', reject)
    request.end(init.body)
  })
}

const all = suites.flatMap(suite => suite.tests)
const chosen = new Set(ids.length === 0 ? all.map(test => test.id) : ids)
// A set takes in what is added to it meanwhile.
for (const id of chosen) (all.find(test => test.id === id)?.depends_on || []).forEach(id => chosen.add(id))
const wanted = suites.map(suite => ({ ...suite, tests: suite.tests.filter(test => chosen.has(test.id)) }))
await runTests(wanted, fetch, false, origin)
agent.destroy()

const results = getResults()
const passed = id => !(id in results) || (results[id] === true && failedDependencies(id).length === 0)
const failedDependencies = id => (all.find(test => test.id === id).depends_on || []).filter(id => !passed(id))
for (const test of all.filter(test => test.id in results)) {
  const result = results[test.id]
  const lacks = failedDependencies(test.id)
  let verdict = 'passed'
  if (lacks.length > 0) verdict = 'dependency'
  else if (result !== true) verdict = result[0] === 'Assertion' ? 'failed' : 'setup'
  const text = lacks.length > 0 ? lacks.join(', ') : result === true ? '' : result[1]
  console.log(JSON.stringify({ id: test.id, kind: test.kind || 'required', result: verdict, text }))
}
