// browser.mjs - Debian's Chromium for tests: pages that complain of errors and of other origins, and checks a line each.
import {existsSync, readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join, resolve} from 'node:path';

// run.sh names the folder of the packages; scripts that are started by hand find them where it has installed them
const require = createRequire(resolve(process.env.NODE_PATH || join(process.argv[2], 'console-node/node_modules'), 'here.js'));
const puppeteer = require('puppeteer-core');

const axe_source = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

let failures = 0;
export const failed = () => failures;

export function check(name, right, seen) {
    if (right) return console.log('ok - ' + name);
    failures++;
    console.log('FAIL - ' + name);
    if (seen !== undefined)
        for (const line of String(typeof seen === 'string' ? seen : JSON.stringify(seen))
            .split('\n')
            .slice(0, 12))
            console.log('    | ' + line);
}

// Every check that was begun ends with a line, also where a step before it throws.
export async function part(name, work) {
    try {
        await work();
    } catch (error) {
        check(name, false, error.stack || error);
    }
}

export function chromium() {
    return [process.env.CHROMIUM, '/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find(
        path => path && existsSync(path)
    );
}

// Chromium's sandbox starts neither for root nor where user namespaces are off, as in many containers; the only pages that
// are opened are those of the gateway under test.
export async function launch() {
    const args = [
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-gpu',
        '--no-first-run',
        '--hide-scrollbars',
        '--force-color-profile=srgb',
        '--font-render-hinting=none',
        '--disable-lcd-text',
        '--disable-dev-shm-usage',
        '--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup' // pages of its own behind the address bar
    ];
    const begin = more =>
        puppeteer.launch({
            executablePath: chromium(),
            headless: true,
            args: [...args, ...more],
            networkEnabled: false, // open() asks for what it needs of it
            protocolTimeout: 120000
        });
    if (process.getuid() === 0) return begin(['--no-sandbox']);
    try {
        return await begin([]);
    } catch {
        return begin(['--no-sandbox']);
    }
}

// A page of the console. complaints: what it logged as an error, threw, or asked of another origin. expected: patterns of
// complaints that belong to the test. before: runs in the page, with arg, before it begins.
export async function open(browser, base, options = {}) {
    const {width = 1280, height = 900, dark = false, route = '', expected = [], before, arg} = options;
    const page = await browser.newPage();
    const complaints = [];
    const origin = new URL(base).origin;
    const complain = text => expected.some(pattern => pattern.test(text)) || complaints.push(text);
    page.on(
        'console',
        message =>
            ['error', 'warn'].includes(message.type()) &&
            complain(message.type() + ': ' + message.text() + ' ' + (message.location()?.url || ''))
    );
    page.on('pageerror', error => complain('thrown: ' + (error.stack || error)));
    const client = await page.createCDPSession();
    client.on('Network.requestWillBeSent', ({request: {url}}) => {
        if (!url.startsWith('data:') && !url.startsWith('blob:') && new URL(url).origin !== origin)
            complaints.push('another origin: ' + url);
    });
    page.on('dialog', dialog => {
        complaints.push('dialog: ' + dialog.message());
        dialog.dismiss();
    });
    await page.setViewport({width, height, deviceScaleFactor: 1});
    await client.send('Network.enable');
    await dress(page, dark ? 'dark' : 'light');
    if (before) await page.evaluateOnNewDocument(before, arg);
    await page.goto(base + (route ? '#/' + route : ''), {waitUntil: 'load'});
    return {
        page,
        complaints,
        go: async to => {
            await page.evaluate(hash => {
                location.hash = hash;
            }, '#/' + to);
            await settled(page);
        }
    };
}

// The theme that the system asks for.
export const dress = (page, theme) =>
    page.emulateMediaFeatures([
        {name: 'prefers-color-scheme', value: theme},
        {name: 'prefers-reduced-motion', value: 'reduce'}
    ]);

// The view has its data: its first answers came and it drew them.
export async function settled(page, seconds = 30) {
    await page.waitForFunction(() => document.querySelector('main')?.dataset.ready === 'yes', {
        timeout: seconds * 1000,
        polling: 30
    });
}

// Waits until the function of the page is true; its last value.
export async function until(page, test, arg, seconds = 30) {
    try {
        await page.waitForFunction(test, {timeout: seconds * 1000, polling: 50}, arg);
        return true;
    } catch {
        return false;
    }
}

export const text = (page, selector = 'main') => page.$eval(selector, node => node.innerText);

// What reaches out of the page to the right, or is cut by a box that does not scroll.
export function overflow(page) {
    return page.evaluate(() => {
        const out = [],
            wide = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth > wide)
            out.push('the page is ' + document.documentElement.scrollWidth + ' wide in ' + wide);
        for (const node of document.querySelectorAll('main *, header *')) {
            if (node.closest('.scroll, .only-read, .skip, svg, .uplot, pre') || node.hidden) continue;
            const box = node.getBoundingClientRect();
            if (box.width > 0 && (box.right > wide + 1 || box.left < -1))
                out.push(
                    node.tagName + '.' + node.className + ' ' + Math.round(box.left) + '..' + Math.round(box.right)
                );
            const style = getComputedStyle(node);
            if (
                node.scrollWidth > node.clientWidth + 1 &&
                style.overflowX === 'hidden' &&
                node.clientWidth > 0 &&
                !node.closest('.clip, .meter')
            )
                out.push('cut: ' + node.tagName + '.' + node.className + ' ' + node.textContent.slice(0, 40));
        }
        return out.slice(0, 8);
    });
}

// What axe-core finds of a serious or critical kind: names for who does not see, roles, keys, contrast.
export async function accessible(page, name) {
    if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe_source);
    const found = await page.evaluate(async () => {
        const {violations, passes} = await window.axe.run(document, {resultTypes: ['violations']});
        return {
            passed: passes.length,
            wrong: violations
                .filter(one => ['serious', 'critical'].includes(one.impact))
                .map(one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 120)).join(' | '))
        };
    });
    check(name + ': axe finds nothing serious', found.passed > 5 && found.wrong.length === 0, found.wrong.join('\n'));
}
