// films.js - a small collection of documents that the scripts here index and search, and what must be found in it.
'use strict';

const films = [
    {
        id: 'heat',
        title: 'Heat and the running detective',
        genre: 'crime',
        tags: 'los angeles,night',
        year: 1995,
        place: '-118.24,34.05',
        vector: [1, 0, 0, 0]
    },
    {
        id: 'solaris',
        title: 'Solaris',
        genre: 'science fiction',
        tags: 'space',
        year: 1972,
        place: '37.62,55.75',
        vector: [0.9, 0.1, 0, 0]
    },
    {
        id: 'stalker',
        title: 'Stalker runs through the zone',
        genre: 'science fiction',
        tags: 'zone,night',
        year: 1979,
        place: '24.75,59.44',
        vector: [0.7, 0.7, 0, 0]
    },
    {
        id: 'alien',
        title: 'Alien',
        genre: 'horror',
        tags: 'space,night',
        year: 1979,
        place: '-0.13,51.51',
        vector: [0, 1, 0, 0]
    },
    {id: 'jaws', title: 'Jaws', genre: 'horror', tags: 'sea', year: 1975, place: '-70.55,41.39', vector: [0, 0, 1, 0]},
    {id: 'ran', title: 'Ran', genre: 'drama', tags: 'castle', year: 1985, place: '131.04,32.88', vector: [0, 0, 0, 1]},
];

const blob = (vector) => Buffer.from(new Float32Array(vector).buffer);

function cosine(a, b) {
    const dot = (x, y) => x.reduce((sum, v, i) => sum + v * y[i], 0);
    return 1 - dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

// The ids of the k nearest to the vector, nearest first, of the films that pass.
function nearest(vector, k, passes = () => true) {
    return films.filter(passes)
        .sort((a, b) => cosine(vector, a.vector) - cosine(vector, b.vector))
        .slice(0, k)
        .map((film) => film.id);
}

const close = (a, b) => Math.abs(Number(a) - b) < 1e-5;

module.exports = {
    films,
    blob,
    cosine,
    nearest,
    close
};
