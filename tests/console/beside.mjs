// beside.mjs BUILD_DIR [PAIRS] [SEARCHES] - what a page that polls costs a server that searches: as many searches without
// a page and with one open, in turn; the server's processor seconds from the kernel, which do not depend on what else the
// machine does as its clock does. JSON by the line; the last one has the medians.
import {mkdtempSync, readdirSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {launch, open, settled} from './browser.mjs';
import {resp} from './resp.mjs';
import {end, gateway, server} from './rig.mjs';
import {seedCache, seedSets} from './seed.mjs';

const [build, pairs = '5', searches = '20000'] = process.argv.slice(2);
const routes = ['overview', 'server', 'sets/items'];
const at_once = 16;

// Nanoseconds that all threads of a process have run.
function ran(pid) {
    let sum = 0;
    for (const task of readdirSync('/proc/' + pid + '/task'))
        sum += Number(readFileSync('/proc/' + pid + '/task/' + task + '/schedstat', 'utf8').split(' ')[0]);
    return sum;
}

async function run(pid, connection, page) {
    const began = performance.now(),
        before = ran(pid);
    let next = 0;
    const one = async () => {
        while (next < Number(searches)) await connection.run('VSIM', 'items', 'ELE', 'item:' + (next++ % 1300), 'COUNT', 10);
    };
    await Promise.all(Array.from({length: at_once}, one));
    const wall_s = (performance.now() - began) / 1000,
        cpu_s = (ran(pid) - before) / 1e9;
    return {page, cpu_s, wall_s, cpu_us_per_search: (cpu_s / Number(searches)) * 1e6};
}

const middle = list => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const folder = mkdtempSync(join(tmpdir(), 'quire-beside.'));
try {
    const one = await server(build, folder, '--lanes', '2');
    const connection = await resp(one.port);
    await seedCache(connection, {name: 'shop'});
    await seedSets(connection);
    const door = await gateway(build, folder, one.port, '--set', 'ui=yes', '--console');
    const browser = await launch();
    await run(one.child.pid, connection, null); // all is warm
    const out = [];
    for (let i = 0; i < Number(pairs); i++) {
        const route = routes[i % routes.length];
        for (const with_ of i % 2 ? [true, false] : [false, true]) {
            const shown = with_ ? await open(browser, door.url + '/ui', {route}) : null;
            if (shown) await settled(shown.page);
            const result = await run(one.child.pid, connection, with_ ? route : null);
            await shown?.page.close();
            console.log(JSON.stringify(result));
            out.push(result);
        }
    }
    const of = (with_, name) => middle(out.filter(one => (one.page !== null) === with_).map(one => one[name]));
    const without = of(false, 'cpu_us_per_search'),
        beside = of(true, 'cpu_us_per_search'),
        cost = ((beside - without) * Number(searches)) / 1e6 / of(true, 'wall_s'); // cores
    // a server whose lanes are busy answers as many fewer as what is left of them says
    console.log(JSON.stringify({without, beside, page_of_a_core: cost, queries_ratio: 1 - cost / 2}));
    await browser.close();
    connection.close();
} finally {
    await end();
    rmSync(folder, {recursive: true, force: true});
}
process.exit();
