// rig.mjs - the programs that the console's tests look at: a quire-server, a stand-in model, a quire-gateway, on free
// loopback ports, ended by their process ids.
import {spawn} from 'node:child_process';
import {existsSync, mkdirSync, readFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const children = [];

// Starts a program and waits for its port: of the file, or of the first line that it prints.
async function started(name, program, args, file) {
    const child = spawn(program, args, {stdio: ['ignore', 'pipe', 'pipe']});
    let printed = '',
        log = '',
        ended = null;
    child.stdout.on('data', bytes => {
        printed = (printed + bytes).slice(-65536);
    });
    child.stderr.on('data', bytes => {
        log = (log + bytes).slice(-65536);
    });
    child.on('exit', (code, signal) => {
        ended = code ?? signal;
    });
    child.on('error', error => {
        ended = error.message;
    });
    children.push(child);
    const said = () => (file ? (existsSync(file) ? readFileSync(file, 'utf8') : '') : printed);
    const port = () => (said().includes('\n') ? Number(said().split('\n')[0]) : 0);
    for (let i = 0; !port(); i++) {
        if (ended !== null || i > 6000) throw new Error(name + ' does not start: ' + ended + '\n' + log);
        await new Promise(done => setTimeout(done, 10));
    }
    return {port: port(), child, log: () => log, ended: () => ended};
}

export function server(build, folder, ...settings) {
    mkdirSync(folder, {recursive: true});
    return started(
        'quire-server',
        join(build, 'quire-server'),
        ['--port', '0', '--port-file', join(folder, 'server.port'), '--dir', join(folder, 'data'), ...settings],
        join(folder, 'server.port')
    );
}

export const model = () =>
    started('the stand-in model', '/usr/bin/python3', [join(root, 'tests/e2e/stand_in_model.py')], null);

export async function gateway(build, folder, serverPort, ...settings) {
    mkdirSync(folder, {recursive: true});
    const one = await started(
        'quire-gateway',
        join(build, 'quire-gateway'),
        [
            '--server',
            '127.0.0.1:' + serverPort,
            '--listen',
            '127.0.0.1:0',
            '--port-file',
            join(folder, 'gateway.port'),
            ...settings
        ],
        join(folder, 'gateway.port')
    );
    one.url = 'http://127.0.0.1:' + one.port;
    return one;
}

export async function end() {
    for (const child of children.splice(0).reverse()) {
        if (child.exitCode !== null || child.signalCode !== null) continue;
        child.kill('SIGTERM');
        const late = setTimeout(() => child.kill('SIGKILL'), 20000);
        await new Promise(done => child.once('exit', done));
        clearTimeout(late);
    }
}
