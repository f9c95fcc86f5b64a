// client_checks.js - what the suites of real clients share: where they ask, checks, and how often the model was asked.
//
// BASE_URL is what a client is given (with /v1), TARGET what stands there: `direct`, the stand-in itself; `off`, the gateway
// with its cache off; `cache`, the gateway with a cache. MODEL_URL is the stand-in, which tells how often it was asked.
// On `cache` each answer that may be kept is asked for twice: the second comes from the cache, and the client must parse
// it to the same.
'use strict';
const { isDeepStrictEqual } = require('node:util');

const base = process.env.BASE_URL;
const model = process.env.MODEL_URL;
const target = process.env.TARGET;
const suite = process.env.SUITE ?? require('node:path').basename(process.argv[1], '_client.js');
const cached = target === 'cache';
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let failed = 0;

function check(name, right, seen) {
    console.log(`${right ? 'ok' : 'FAIL'} - ${suite}, ${target}: ${name}`);
    if (right) return;
    failed++;
    const text = seen instanceof Error ? seen.stack : JSON.stringify(seen);
    if (seen !== undefined) console.log('    | ' + String(text).slice(0, 900));
}

const get = async (path) => (await fetch(model + path)).json();
const calls = async (text) => (await get('/calls'))[text] ?? 0;
// A question that no other suite or target asks.
const question = (text) => `${text} (${suite}, ${target})`;

// Remembers the headers of the last response; a client takes it for its `fetch`.
const last = { headers: new Headers(), status: 0, urls: [], init: undefined };
async function watched(input, init) {
    const response = await fetch(input, init);
    last.headers = response.headers;
    last.status = response.status;
    last.urls.push(String(input.url ?? input));
    last.init = init;
    return response;
}

// Waits until the answer to the last request can be had from the cache: it is put after it was given. Asking so never asks
// the model.
async function isKept() {
    const headers = new Headers(last.init.headers);
    headers.set('cache-control', 'only-if-cached');
    const again = { method: last.init.method, body: last.init.body, headers };
    for (const end = Date.now() + 20000; Date.now() < end; await sleep(20)) {
        const response = await fetch(last.urls.at(-1), again);
        await response.arrayBuffer();
        if (response.headers.get('x-quire-cache') === 'exact') return;
    }
}

// Without what differs from answer to answer: ids and times.
function same(value) {
    if (Array.isArray(value)) return value.map(same);
    if (value === null || typeof value !== 'object') return value;
    const left = Object.entries(value).filter(([name]) =>
        !['id', 'created', 'created_at', '_request_id', 'timestamp', 'headers'].includes(name));
    return Object.fromEntries(left.map(([name, inner]) => [name, same(inner)]));
}

// Asks, and on `cache` again: kept: whether the second is to come from the cache. named: how the model counts it.
async function twice(name, named, ask, right, kept = true) {
    try {
        const first = await ask();
        check(name, right(first), first);
        if (!cached) {
            check(name + ': one call of the model', (await calls(named)) === 1, await calls(named));
            return first;
        }
        const status = last.headers.get('x-quire-cache');
        check(name + ': asked first, by its header', kept ? status === 'miss' : status !== 'exact', status);
        if (kept) await isKept();
        const second = await ask();
        check(name + ': the second is right, too', right(second), second);
        if (kept) {
            check(name + ': the same', isDeepStrictEqual(same(first), same(second)), [same(first), same(second)]);
            check(name + ': exact, by its header', last.headers.get('x-quire-cache') === 'exact',
                  [...last.headers.entries()]);
        }
        check(name + (kept ? ': one call' : ': two calls') + ' of the model',
              (await calls(named)) === (kept ? 1 : 2), await calls(named));
        return second;
    } catch (e) {
        check(name, false, e);
        return undefined;
    }
}

// A promise that is to fail: with what, is for right(error) to say.
async function fails(name, promise, right) {
    try {
        check(name, false, await promise);
    } catch (e) {
        check(name, right(e), e);
    }
}

// Whether the stand-in sees that a client has left.
async function leaves(name, before) {
    for (const end = Date.now() + 20000; Date.now() < end && (await get('/state')).gone <= before; ) await sleep(20);
    check(name, (await get('/state')).gone > before, await get('/state'));
}

async function run(...tests) {
    for (const test of tests) {
        try {
            await test();
        } catch (e) {
            check(test.name, false, e);
        }
    }
    process.exit(failed ? 1 : 0);
}

module.exports = { base, model, target, cached, check, get, calls, question, last, watched, twice, fails, leaves, run, sleep };
