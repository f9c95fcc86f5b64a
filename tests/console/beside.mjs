// beside.mjs BUILD_DIR [POLLS] - what a page that polls costs the server, in its processor time from the kernel: each view
// polls POLLS times as fast as it is answered; what the server takes without a page in as much time is taken off. From that
// follows what is left for searches while a page polls every two seconds. JSON by the line. Clocks of searches beside a
// page say nothing on a machine that does other things, too; processor time is taken from them in any case.
import {mkdtempSync, readdirSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {launch, settled, until} from './browser.mjs';
import {resp} from './resp.mjs';
import {end, gateway, server} from './rig.mjs';
import {seedCache, seedSets} from './seed.mjs';

const [build, polls = '300'] = process.argv.slice(2);
const routes = ['overview', 'categories/shop', 'category/shop/faq', 'requests', 'tenants/shop', 'sets/items', 'server'];
const poll_s = 2,
    lanes = 2,
    searches = 10000,
    at_once = 16;

// Nanoseconds that all threads of a process have run.
function ran(pid) {
    let sum = 0;
    for (const task of readdirSync('/proc/' + pid + '/task'))
        sum += Number(readFileSync('/proc/' + pid + '/task/' + task + '/schedstat', 'utf8').split(' ')[0]);
    return sum;
}

const rest = ms => new Promise(done => setTimeout(done, ms));

async function searchUs(pid, connection) {
    const before = ran(pid);
    let next = 0;
    const one = async () => {
        while (next < searches) await connection.run('VSIM', 'items', 'ELE', 'item:' + (next++ % 1300), 'COUNT', 10);
    };
    await Promise.all(Array.from({length: at_once}, one));
    return (ran(pid) - before) / searches / 1000;
}

// Share of a core that it takes with nobody there.
async function idleShare(pid) {
    const before = ran(pid),
        began = performance.now();
    await rest(4000);
    return (ran(pid) - before) / 1e6 / (performance.now() - began);
}

async function pollUs(pid, browser, url, route, idle) {
    const page = await browser.newPage();
    await page.evaluateOnNewDocument(() => {
        const real = window.setTimeout;
        window.polls = 0;
        window.setTimeout = (call, ms, ...more) => real(call, ms === 2000 ? (window.polls++, 0) : ms, ...more);
    });
    await page.goto(url + '#/' + route, {waitUntil: 'load'});
    await settled(page);
    const seen = () => page.evaluate(() => window.polls);
    const first = await seen(),
        before = ran(pid),
        began = performance.now();
    await until(page, wanted => window.polls >= wanted, first + Number(polls), 200);
    const done = (await seen()) - first,
        ms = performance.now() - began,
        took = (ran(pid) - before) / 1000;
    await page.close();
    return {done, us: (took - idle * ms * 1000) / done};
}

const folder = mkdtempSync(join(tmpdir(), 'quire-beside.'));
try {
    const one = await server(build, folder, '--lanes', String(lanes));
    const connection = await resp(one.port);
    await seedCache(connection, {name: 'shop'});
    await seedSets(connection);
    const door = await gateway(build, folder, one.port, '--set', 'ui=yes', '--console');
    const browser = await launch();
    await searchUs(one.child.pid, connection); // all is warm
    const idle = await idleShare(one.child.pid),
        search_us = await searchUs(one.child.pid, connection);
    console.log(JSON.stringify({idle_share_of_a_core: idle, search_us, searches_per_core: Math.round(1e6 / search_us)}));
    for (const route of routes) {
        const {done, us} = await pollUs(one.child.pid, browser, door.url + '/ui', route, idle);
        const share = us / 1e6 / poll_s;
        // both lanes search all the time: what is taken from them is missing
        console.log(JSON.stringify({route, polls: done, poll_us: us, share_of_a_core: share, queries_ratio: 1 - share / lanes}));
    }
    await browser.close();
    connection.close();
} finally {
    await end();
    rmSync(folder, {recursive: true, force: true});
}
process.exit();
