// screenshots.mjs BUILD_DIR [FOLDER] - makes the pictures of docs/console.md (FOLDER: docs/console): a server with seeded
// data, a gateway before the stand-in model, a minute of requests. Each picture is below 150 KB.
import {mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {launch, open, settled} from './browser.mjs';
import {withPalette} from './png.mjs';
import {resp} from './resp.mjs';
import {end, gateway, model, root, server} from './rig.mjs';
import {randoms, seedCache, seedSets, subjects, ways} from './seed.mjs';
import {askCache, views} from './views.mjs';

const [build, out = join(root, 'docs/console')] = process.argv.slice(2);
const seconds = 60,
    most_bytes = 150 * 1000;

const places = [
    'in the shop',
    'by telephone',
    'from abroad',
    'as a guest',
    'on Sunday',
    'with a friend',
    'without an account'
];

// Questions of three customers, many of them again.
async function traffic(url) {
    const {next} = randoms(3);
    const due = Date.now() + seconds * 1000;
    const one = async () => {
        const customer = ['acme', 'bolt', 'corp'][Math.floor(next() ** 2 * 3)],
            n = Math.floor(next() ** 2 * 400);
        const answer = await fetch(url + '/v1/chat/completions', {
            method: 'POST',
            headers: {'Content-Type': 'application/json', Authorization: 'Bearer sk-' + customer},
            body: JSON.stringify({
                model: 'stand-in',
                messages: [
                    {
                        role: 'user',
                        content:
                            next() < 0.02
                                ? 'fail with 429'
                                : ways[n % ways.length] +
                                  ' ' +
                                  subjects[n % subjects.length] +
                                  ' ' +
                                  places[Math.floor(n / 8) % places.length] +
                                  '?'
                    }
                ]
            })
        });
        await answer.text();
    };
    while (Date.now() < due) {
        await Promise.all(Array.from({length: 1 + Math.floor(4 * (1 + Math.sin(Date.now() / 6000)))}, one));
        await new Promise(done => setTimeout(done, 200));
    }
}

// Entries without a context, which a question of the playground can find.
async function keepQuestions(connection, modelPort) {
    for (let n = 0; n < 48; n++) {
        const question =
            ways[n % ways.length] + ' ' + subjects[Math.floor(n / 8)] + ' ' + places[n % places.length] + '?';
        const said = await (
            await fetch('http://127.0.0.1:' + modelPort + '/v1/embeddings', {
                method: 'POST',
                headers: {'Content-Type': 'application/json'},
                body: JSON.stringify({model: 'stand-in', input: question, encoding_format: 'float'})
            })
        ).json();
        await connection.run(
            'SC.PUT',
            'llm',
            'CAT',
            'default',
            'SCOPE',
            'tenant',
            'demo',
            'VEC',
            Buffer.from(Float32Array.from(said.data[0].embedding).buffer),
            'TEXT',
            question,
            'VALUE',
            'As the help pages say.'
        );
    }
}

// All of a view; smaller by steps until it fits into the bytes.
async function shoot(page, name) {
    const {width} = page.viewport(),
        path = join(out, name + '.png');
    const tall = () => page.evaluate(() => Math.ceil(Math.max(700, document.querySelector('main').getBoundingClientRect().height)));
    let picture;
    await page.evaluate(() => {
        document.activeElement.blur();
        // tables in full, but for those of hundreds of rows: these end after a row
        for (const node of document.querySelectorAll('div.scroll')) {
            const top = node.getBoundingClientRect().top,
                ends = [...node.querySelectorAll('tr')].map(row => row.getBoundingClientRect().bottom - top);
            node.style.maxHeight = node.scrollHeight < 1000 ? 'none' : ends.filter(end => end < node.clientHeight).at(-1) + 'px';
        }
    });
    for (let scale = 1; !picture || picture.length >= most_bytes; scale *= 0.9) {
        await page.setViewport({width, height: await tall(), deviceScaleFactor: scale});
        await page.evaluate(() => new Promise(done => setTimeout(done, 300))); // charts take their new size
        await page.setViewport({width, height: await tall(), deviceScaleFactor: scale});
        picture = withPalette(Buffer.from(await page.screenshot()));
        console.log(name + '.png ' + width + ' x ' + page.viewport().height + ', by ' + scale.toFixed(2) + ', ' + picture.length + ' bytes');
    }
    writeFileSync(path, picture);
    await page.setViewport({width, height: 900, deviceScaleFactor: 1});
}

const folder = mkdtempSync(join(tmpdir(), 'quire-screenshots.'));
mkdirSync(out, {recursive: true});
try {
    const one = await server(build, folder),
        connection = await resp(one.port);
    await seedCache(connection, {name: 'shop'});
    await seedSets(connection);
    const stand = await model();
    const door = await gateway(
        build,
        folder,
        one.port,
        '--set',
        'ui=yes',
        '--upstream',
        'http://127.0.0.1:' + stand.port,
        '--set',
        'log-texts=true',
        '--server-timeout',
        '30s',
        '--embed-timeout',
        '30s',
        '--set',
        'embed-url=http://127.0.0.1:' + stand.port + '/v1',
        '--set',
        'embed-model=stand-in',
        '--set',
        'similarity=0.8'
    );
    await traffic(door.url);
    const browser = await launch();
    const light = await open(browser, door.url + '/ui');
    await settled(light.page);
    for (const [name, route, act] of views.filter(([name]) => !['docs', 'meanings'].includes(name))) {
        await light.go(route);
        if (act) await act(light.page);
        await shoot(light.page, name);
    }
    const dark = await open(browser, door.url + '/ui', {dark: true});
    await settled(dark.page);
    await shoot(dark.page, 'dark');
    await light.go('playground');
    await keepQuestions(connection, stand.port);
    await askCache(light.page, {
        cache: 'llm',
        category: 'default',
        text: 'By telephone, could I reset my password?',
        scope: 'tenant=demo'
    });
    await shoot(light.page, 'playground-cache');
    const narrow = await open(browser, door.url + '/ui', {width: 360, route: 'category/shop/faq'});
    await settled(narrow.page);
    await shoot(narrow.page, 'narrow');
    const complaints = [...light.complaints, ...dark.complaints, ...narrow.complaints];
    if (complaints.length) throw new Error(complaints.join('\n'));
    await browser.close();
    connection.close();
} finally {
    await end();
    rmSync(folder, {recursive: true, force: true});
}
process.exit();
