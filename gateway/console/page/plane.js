// plane.js - the two directions in which a sample of vectors differs most (PCA by power iteration), in slices of a few
// milliseconds so that the page stays awake. A worker would need a looser Content-Security-Policy for no gain: 2,000
// vectors of 256 numbers take about a tenth of a second.
'use strict';

const plane = (() => {
	const slice_ms = 8,
		rounds = 40;
	const rest = () => new Promise(done => setTimeout(done, 0));

	// rows: Float32Array of count x dim. Returns {xs, ys, share, mean, axes}: share is the part of the variance that the plane holds.
	async function find(rows, count, dim, stopped) {
		let due = performance.now() + slice_ms;
		const breathe = async () => {
			if (performance.now() < due) return;
			await rest();
			if (stopped()) throw new DOMException('left', 'AbortError');
			due = performance.now() + slice_ms;
		};
		const mean = new Float32Array(dim);
		for (let i = 0; i < count; i++) for (let k = 0; k < dim; k++) mean[k] += rows[i * dim + k] / count;
		let total = 0;
		const centred = new Float32Array(count * dim);
		for (let i = 0; i < count; i++)
			for (let k = 0; k < dim; k++) {
				const value = rows[i * dim + k] - mean[k];
				centred[i * dim + k] = value;
				total += value * value;
			}
		const axes = [],
			places = [];
		let held = 0;
		for (let axis = 0; axis < 2; axis++) {
			let v = Float64Array.from({length: dim}, (_, k) => Math.sin(1 + k * (axis + 1) * 1.7));
			let strength = 0;
			for (let round = 0; round < rounds; round++) {
				for (const other of axes) {
					let along = 0;
					for (let k = 0; k < dim; k++) along += v[k] * other[k];
					for (let k = 0; k < dim; k++) v[k] -= along * other[k];
				}
				let length = Math.hypot(...v);
				if (!(length > 1e-12)) break;
				for (let k = 0; k < dim; k++) v[k] /= length;
				const next = new Float64Array(dim);
				strength = 0;
				for (let i = 0; i < count; i++) {
					let along = 0;
					for (let k = 0, at = i * dim; k < dim; k++, at++) along += centred[at] * v[k];
					for (let k = 0, at = i * dim; k < dim; k++, at++) next[k] += along * centred[at];
					strength += along * along;
					if ((i & 127) === 127) await breathe();
				}
				if (round < rounds - 1) v = next;
			}
			axes.push(v);
			held += strength;
			places.push(project(centred, count, dim, v));
		}
		return {xs: places[0], ys: places[1], share: total > 0 ? Math.min(1, held / total) : 0, mean, axes};
	}

	function project(centred, count, dim, axis) {
		const out = new Float64Array(count);
		for (let i = 0; i < count; i++) {
			let along = 0;
			for (let k = 0; k < dim; k++) along += centred[i * dim + k] * axis[k];
			out[i] = along;
		}
		return out;
	}

	// Bytes of signed 8-bit numbers in base64, count x dim.
	function decode(text) {
		const bytes = atob(text),
			out = new Float32Array(bytes.length);
		for (let i = 0; i < bytes.length; i++) out[i] = (bytes.charCodeAt(i) << 24) >> 24;
		return out;
	}

	return {find, decode};
})();
