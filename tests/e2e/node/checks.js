// checks.js - what node_redis.js and ioredis.js share: checks, one line each, and the data the server has loaded.
'use strict';
const fs = require('node:fs');
const path = require('node:path');

const port = Number(process.env.QUIRE_PORT);
let failed = 0;

function check(name, right, seen) {
    console.log((right ? 'ok - ' : 'FAIL - ') + name);
    if (!right) {
        failed++;
        console.log('    | ' + String(JSON.stringify(seen)).slice(0, 600));
    }
}

async function rejects(name, promise, pattern) {
    try {
        check(name, false, await promise);
    } catch (e) {
        check(name, pattern.test(e.message), e.message);
    }
}

// The vectors of a .fbin file: rows and dimensions as 32-bit numbers, then the numbers of each row.
function readVectors(name) {
    const bytes = fs.readFileSync(path.join(process.env.QUIRE_WORK, name));
    const rows = bytes.readUInt32LE(0);
    const dim = bytes.readUInt32LE(4);
    return Array.from({ length: rows }, (_, i) => bytes.subarray(8 + i * dim * 4, 8 + (i + 1) * dim * 4));
}

function numbersOf(blob) {
    return Array.from({ length: blob.length / 4 }, (_, i) => blob.readFloatLE(4 * i));
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

// Runs the test, and ends the process whatever happened to its connections.
function run(test) {
    test().catch((e) => check('the test runs to its end', false, e.stack ?? e.message)).finally(() => process.exit(failed ? 1 : 0));
}

module.exports = { port, check, rejects, readVectors, numbersOf, same, run };
