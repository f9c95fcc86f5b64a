// resp.mjs - as much of a RESP client as the console's tests need: commands in turn, RESP3 replies as values.
import {connect} from 'node:net';

export async function resp(port, password) {
    const socket = connect(port, '127.0.0.1');
    await new Promise((done, fail) => socket.once('connect', done).once('error', fail));
    let bytes = Buffer.alloc(0);
    const waiting = [];

    // [value, end], or null where it has not all come
    function value(at) {
        const end = bytes.indexOf('\r\n', at);
        if (end < 0) return null;
        const kind = String.fromCharCode(bytes[at]),
            line = bytes.toString('utf8', at + 1, end),
            next = end + 2;
        switch (kind) {
            case '+':
                return [line, next];
            case '-':
                return [new Error(line), next];
            case ':':
                return [Number(line), next];
            case ',':
                return [Number(line), next];
            case '#':
                return [line === 't', next];
            case '_':
                return [null, next];
            case '$':
            case '=': {
                const size = Number(line);
                if (size < 0) return [null, next];
                if (bytes.length < next + size + 2) return null;
                const text = bytes.toString('utf8', next, next + size);
                return [kind === '=' ? text.slice(4) : text, next + size + 2];
            }
            case '*':
            case '~':
            case '>':
            case '%': {
                const out = [];
                let place = next;
                for (let left = Number(line) * (kind === '%' ? 2 : 1); left > 0; left--) {
                    const one = value(place);
                    if (!one) return null;
                    out.push(one[0]);
                    place = one[1];
                }
                if (kind !== '%') return [out, place];
                const map = {};
                for (let i = 0; i < out.length; i += 2) map[out[i]] = out[i + 1];
                return [map, place];
            }
            default:
                throw new Error('RESP: ' + kind);
        }
    }

    socket.on('data', more => {
        bytes = Buffer.concat([bytes, more]);
        for (let one; bytes.length && (one = value(0));) {
            bytes = bytes.subarray(one[1]);
            waiting.shift()(one[0]);
        }
    });

    function ask(...words) {
        const out = ['*' + words.length + '\r\n'];
        const pieces = [Buffer.from(out[0])];
        for (const word of words) {
            const body = Buffer.isBuffer(word) ? word : Buffer.from(String(word));
            pieces.push(Buffer.from('$' + body.length + '\r\n'), body, Buffer.from('\r\n'));
        }
        socket.write(Buffer.concat(pieces));
        return new Promise(done => waiting.push(done));
    }

    // An error reply is thrown.
    async function run(...words) {
        const said = await ask(...words);
        if (said instanceof Error)
            throw new Error(
                words
                    .slice(0, 4)
                    .map(word => String(word).slice(0, 40))
                    .join(' ') +
                    ': ' +
                    said.message
            );
        return said;
    }
    await run('HELLO', '3', ...(password ? ['AUTH', 'default', password] : []));
    return {run, ask, close: () => socket.end()};
}
