// lazy.js - number formats that are made when a number is first formatted. A browser reads tables of languages for the first
// one, which takes it longer than all else before the first view; uPlot makes one when it is loaded, for axes without units,
// of which there are none here.
'use strict';

Intl.NumberFormat = (Real => {
	return class {
		#words;
		#real;
		constructor(...words) {
			this.#words = words;
		}
		format(value) {
			return (this.#real ??= new Real(...this.#words)).format(value);
		}
	};
})(Intl.NumberFormat);
