// png.mjs - a screenshot with a palette: pages have few colours, so a byte for each pixel is enough, and a picture of a whole
// view stays small. Colours beyond 256 become the nearest of those.
import {deflateSync, inflateSync} from 'node:zlib';

const most = 256,
    frequent = 128;

// Rows of RGB or RGBA of 8 bits, without the filters.
function pixels(png) {
    let width, height, step;
    const parts = [];
    for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
        const kind = png.toString('latin1', at + 4, at + 8),
            body = png.subarray(at + 8, at + 8 + png.readUInt32BE(at));
        if (kind === 'IHDR') {
            [width, height, step] = [body.readUInt32BE(0), body.readUInt32BE(4), {2: 3, 6: 4}[body[9]]];
            if (body[8] !== 8 || !step || body[12]) throw new Error('a PNG of another kind');
        }
        if (kind === 'IDAT') parts.push(body);
    }
    const raw = inflateSync(Buffer.concat(parts)),
        line = width * step,
        out = Buffer.alloc(line * height);
    for (let y = 0; y < height; y++) {
        const filter = raw[y * (line + 1)];
        for (let x = 0; x < line; x++) {
            const i = y * line + x,
                left = x >= step ? out[i - step] : 0,
                up = y ? out[i - line] : 0,
                corner = y && x >= step ? out[i - line - step] : 0,
                guess = left + up - corner,
                [a, b, c] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
            const add = [0, left, up, (left + up) >> 1, a <= b && a <= c ? left : b <= c ? up : corner][filter];
            out[i] = raw[y * (line + 1) + 1 + x] + add;
        }
    }
    return {width, height, step, out};
}

function crc32(bytes) {
    let crc = ~0;
    for (const byte of bytes) {
        crc ^= byte;
        for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
    }
    return ~crc >>> 0;
}

function chunk(kind, body) {
    const out = Buffer.alloc(12 + body.length);
    out.writeUInt32BE(body.length, 0);
    out.write(kind, 4, 'latin1');
    body.copy(out, 8);
    out.writeUInt32BE(crc32(out.subarray(4, 8 + body.length)), 8 + body.length);
    return out;
}

// The most frequent colours, then those that are farthest from what is there: a small mark keeps its colour, too.
function chosen(times) {
    const left = [...times].sort((a, b) => b[1] - a[1]).map(([one, n]) => ({one, weight: Math.sqrt(n), away: Infinity, place: 0})),
        palette = [];
    while (palette.length < most && left.some(({away}) => away > 0)) {
        const next =
            palette.length < frequent
                ? left[palette.length]
                : left.reduce((best, other) => (other.away * other.weight > best.away * best.weight ? other : best));
        palette.push(next.one);
        for (const other of left) {
            const away = [16, 8, 0].reduce((sum, by) => sum + (((other.one >> by) & 255) - ((next.one >> by) & 255)) ** 2, 0);
            if (away < other.away) Object.assign(other, {away, place: palette.length - 1});
        }
    }
    return {palette, place: new Map(left.map(({one, place}) => [one, place]))};
}

export function withPalette(png) {
    const {width, height, step, out} = pixels(png);
    const colour = i => (out[i] << 16) | (out[i + 1] << 8) | out[i + 2],
        times = new Map();
    for (let i = 0; i < out.length; i += step) times.set(colour(i), (times.get(colour(i)) || 0) + 1);
    const {palette, place} = chosen(times);
    const rows = Buffer.alloc((width + 1) * height);
    for (let y = 0; y < height; y++)
        for (let x = 0; x < width; x++) rows[y * (width + 1) + 1 + x] = place.get(colour((y * width + x) * step));
    const head = Buffer.alloc(13);
    head.writeUInt32BE(width, 0);
    head.writeUInt32BE(height, 4);
    head.set([8, 3, 0, 0, 0], 8);
    return Buffer.concat([
        png.subarray(0, 8),
        chunk('IHDR', head),
        chunk('PLTE', Buffer.from(palette.flatMap(one => [one >> 16, (one >> 8) & 255, one & 255]))),
        chunk('IDAT', deflateSync(rows, {level: 9})),
        chunk('IEND', Buffer.alloc(0))
    ]);
}
