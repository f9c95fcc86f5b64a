// beside.mjs BUILD_DIR [--rounds N] [--seconds S] [--polls P] [--rr] [--only view|poll|queries] - what the console costs, in
// four figures, JSON by the line; the last line is the summary.
//
//   page_bytes       of /ui, as it is delivered without compression
//   first_view_ms    from the navigation to the frame in which the first view has its data, each time in a browser context
//                    of its own, so that nothing is kept from before
//   poll             processor time of the server, from the kernel's count: with a page that polls every two seconds less
//                    without one, in turn; and of one poll, where a page polls P times as fast as it is answered. At the
//                    end Sets beside 200,000 other keys, with what finding the sets among them takes once a minute
//   queries_ratio    searches a second (redis-benchmark) with a page open over those without, of neighbouring windows of S
//                    seconds, in turn; beside it the server's processor time for a search
//
// Rows are medians over the rounds, in which "with" and "without" take turns in being first. --rr: server and
// redis-benchmark run as `chrt -r 1`, so that the browser takes no core away from them: without it the second clock shows
// what a browser on the same machine costs, not what the page costs the server. It says how often the page has polled.
import {execFileSync, spawn} from 'node:child_process';
import {mkdtempSync, readdirSync, readFileSync, rmSync} from 'node:fs';
import {cpus, tmpdir} from 'node:os';
import {join} from 'node:path';
import {parseArgs} from 'node:util';
import {launch, settled, until} from './browser.mjs';
import {resp} from './resp.mjs';
import {end, gateway, server} from './rig.mjs';
import {seedCache, seedSets} from './seed.mjs';

const {values: options, positionals} = parseArgs({
    allowPositionals: true,
    options: {
        rounds: {type: 'string', default: '5'},
        seconds: {type: 'string', default: '6'},
        polls: {type: 'string', default: '300'},
        rr: {type: 'boolean', default: false},
        only: {type: 'string'}
    }
});
const build = positionals[0];
const rounds = Number(options.rounds),
    seconds = Number(options.seconds),
    polls = Number(options.polls);
const routes = ['overview', 'categories/shop', 'category/shop/faq', 'requests', 'tenants/shop', 'sets/items', 'server'];
const loads = 4 * rounds, // of a page in a new context
    lanes = Math.max(1, Math.floor(cpus().length / 2)), // the other cores are for who asks
    at_once = 16,
    other_keys = 200000,
    query = ['VSIM', 'items', 'ELE', 'item:7', 'COUNT', '10'];

const wanted = part => !options.only || options.only === part;
const rest = ms => new Promise(done => setTimeout(done, ms));
const sorted = list => [...list].sort((a, b) => a - b);
const median = list => sorted(list)[Math.floor(list.length / 2)] ?? null;
const print = row => console.log(JSON.stringify(row));

// Nanoseconds that all threads of a process have run.
function ran(pid) {
    let sum = 0;
    for (const task of readdirSync('/proc/' + pid + '/task'))
        sum += Number(readFileSync('/proc/' + pid + '/task/' + task + '/schedstat', 'utf8').split(' ')[0]);
    return sum;
}

// A page that says when its first view was there, and counts what it asks.
async function newPage(browser, faster) {
    const context = await browser.createBrowserContext(),
        page = await context.newPage();
    await page.evaluateOnNewDocument(fast => {
        const real = window.setTimeout,
            asked = window.fetch;
        window.polls = 0;
        window.calls = 0;
        window.setTimeout = (call, ms, ...more) =>
            real(call, ms === 2000 ? (window.polls++, fast ? 0 : ms) : ms, ...more);
        window.fetch = (...what) => (window.calls++, asked(...what));
        const seen = new MutationObserver(() => {
            if (document.querySelector('main')?.dataset.ready !== 'yes') return;
            seen.disconnect();
            window.dataAt = performance.now();
            requestAnimationFrame(() => real(() => (window.readyAt = performance.now()), 0));
        });
        seen.observe(document, {subtree: true, childList: true, attributes: true, attributeFilter: ['data-ready']});
    }, faster);
    return {page, close: () => context.close()};
}

async function opened(browser, url, route, faster = false) {
    const one = await newPage(browser, faster);
    await one.page.goto(url + '#/' + route, {waitUntil: 'load'});
    await settled(one.page);
    return one;
}

async function firstView(browser, url) {
    const took = [],
        data = [];
    for (let i = 0; i < loads; i++) {
        const {page, close} = await newPage(browser, false);
        await page.goto(url, {waitUntil: 'load'});
        await until(page, () => window.readyAt !== undefined);
        took.push(await page.evaluate(() => window.readyAt));
        data.push(await page.evaluate(() => window.dataAt));
        await close();
    }
    const order = sorted(took);
    print({
        first_view_ms: median(took),
        before_its_frame_ms: median(data),
        p90_ms: order[Math.floor(0.9 * loads)],
        longest_ms: order.at(-1),
        first_ms: took[0],
        loads
    });
    return median(took);
}

// Share of a core that the server takes, with a page of the route or with none.
async function share(pid, browser, url, route) {
    const one = route && (await opened(browser, url, route));
    const before = ran(pid),
        began = performance.now();
    await rest(seconds * 1000);
    const out = (ran(pid) - before) / 1e6 / (performance.now() - began);
    await one?.close();
    return out;
}

// In turn: both once in a round, each first in every other.
async function inTurn(work) {
    const out = [];
    for (let i = 0; i < rounds; i++) {
        const pair = {};
        for (const kind of i % 2 ? ['without', 'with'] : ['with', 'without']) pair[kind] = await work(kind === 'with');
        out.push(pair);
    }
    return out;
}

async function pollCost(pid, browser, url, route) {
    const pairs = await inTurn(open => share(pid, browser, url, open ? route : null));
    const {page, close} = await opened(browser, url, route, true);
    const first = await page.evaluate(() => window.polls),
        before = ran(pid),
        began = performance.now();
    await until(page, wanted => window.polls >= wanted, first + polls, 200);
    const done = (await page.evaluate(() => window.polls)) - first,
        ms = performance.now() - began;
    const idle = median(pairs.map(one => one.without));
    const us = ((ran(pid) - before) / 1000 - idle * ms * 1000) / done;
    await close();
    const taken = median(pairs.map(one => one.with - one.without));
    print({route, share_of_a_core: taken, without: idle, poll_us: us, share_by_poll_us: us / 1e6 / 2, polls: done});
    return Math.max(taken, us / 1e6 / 2);
}

// Sets are found by going through all keys: when the view opens, and then each minute.
async function besideKeys(one, browser, url) {
    const redis = await resp(one.port);
    for (let i = 0; i < other_keys; i += 1000)
        await Promise.all(Array.from({length: 1000}, (_, k) => redis.run('SET', 'key:' + (i + k), 'value')));
    redis.close();
    const pid = one.child.pid,
        scans = 10,
        before = ran(pid);
    let requests = 0;
    for (let i = 0; i < scans; i++) {
        let cursor = '0';
        do {
            cursor = (await (await fetch(url + '/api/sets?cursor=' + cursor)).json()).cursor;
            requests++;
        } while (cursor !== '0');
    }
    const scan_us = (ran(pid) - before) / 1000 / scans;
    print({other_keys, scan_us, requests_of_a_scan: requests / scans, scans_share_of_a_core: scan_us / 60e6});
    return (await pollCost(pid, browser, url, 'sets/items')) + scan_us / 60e6;
}

function benchmark(port, n) {
    const words = ['redis-benchmark', '-p', port, '-c', at_once, '-n', n, '--csv', ...query].map(String);
    const [program, ...args] = options.rr ? ['chrt', '-r', '1', ...words] : words;
    const child = spawn(program, args, {stdio: ['ignore', 'pipe', 'pipe']});
    let said = '';
    child.stdout.on('data', bytes => (said += bytes));
    child.stderr.on('data', bytes => (said += bytes));
    return new Promise((done, fail) => {
        child.on('error', fail);
        child.on('close', () => {
            const found = /"VSIM[^"]*","([0-9.]+)"/i.exec(said);
            if (found) done(Number(found[1]));
            else fail(new Error('redis-benchmark says: ' + said.slice(0, 400)));
        });
    });
}

async function queriesRatio(one, browser, url, route, n) {
    const pid = one.child.pid;
    let calls = 0,
        views = 0;
    const pairs = await inTurn(async open => {
        const seen = open && (await opened(browser, url, route));
        const asked = seen && (await seen.page.evaluate(() => window.calls));
        const before = ran(pid),
            rate = await benchmark(one.port, n);
        const us = (ran(pid) - before) / 1000 / n;
        if (seen) {
            calls += (await seen.page.evaluate(() => window.calls)) - asked;
            views++;
            await seen.close();
        }
        return {rate, us};
    });
    const ratio = median(pairs.map(pair => pair.with.rate / pair.without.rate));
    print({
        route,
        queries_ratio: ratio,
        queries_per_s: median(pairs.map(pair => pair.without.rate)),
        with_page: median(pairs.map(pair => pair.with.rate)),
        server_us_ratio: median(pairs.map(pair => pair.without.us / pair.with.us)),
        asked_by_page_in_a_window: calls / views
    });
    return ratio;
}

const folder = mkdtempSync(join(tmpdir(), 'quire-beside.'));
try {
    const one = await server(build, folder, '--lanes', String(lanes)),
        pid = one.child.pid;
    const connection = await resp(one.port);
    await seedCache(connection, {name: 'shop'});
    await seedSets(connection);
    connection.close();
    if (options.rr) execFileSync('chrt', ['-a', '-r', '-p', '1', String(pid)]);
    const door = await gateway(build, folder, one.port, '--set', 'ui=yes', '--console'),
        url = door.url + '/ui';
    print({lanes, cores: cpus().length, rounds, seconds, scheduling: options.rr ? 'chrt -r 1' : 'as others'});
    const page_bytes = (await (await fetch(url)).arrayBuffer()).byteLength;
    const browser = await launch();
    const first_view_ms = wanted('view') ? await firstView(browser, url) : null;
    const shares = [],
        ratios = [];
    if (wanted('poll')) for (const route of routes) shares.push(await pollCost(pid, browser, url, route));
    if (wanted('queries')) {
        const n = Math.ceil((await benchmark(one.port, 20000)) * seconds); // searches of a window
        for (const route of routes) ratios.push(await queriesRatio(one, browser, url, route, n));
    }
    if (wanted('poll')) shares.push(await besideKeys(one, browser, url));
    print({
        page_bytes,
        first_view_ms,
        poll_share_of_a_core: sorted(shares).at(-1) ?? null,
        queries_ratio: median(ratios),
        worst_queries_ratio: sorted(ratios)[0] ?? null
    });
    await browser.close();
} finally {
    await end();
    rmSync(folder, {recursive: true, force: true});
}
process.exit();
