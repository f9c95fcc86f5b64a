#!/usr/bin/python3
"""risk_glosses.py OUT.tsv [SYNSETS] - a stream of look-alikes for risk.sh, from WordNet's definitions (Debian package
wordnet-base): lines of synset, category, answer and text.

A request asks for the word of a definition; the answer is the synset. Definitions are full of near duplicates that
differ in a name or a number: "a city in eastern Texas", "United States film actor (born in 1932)", "the cardinal
number that is the sum of eight and one". A third of the synsets is asked for once more or twice, as another person
would: the parentheses left out, a word replaced by a synonym (a fellow lemma of that word's only synset), the clauses
exchanged, or a frame put around it. Everything follows from the files and one seed.
"""
import random
import re
import sys

FRAMES = ["what is the word for {}", "what do you call {}", "{}", "{}", "{}", "which word means {}"]


def read_synsets():
    """(synset, lemmas, definition) of every noun, verb, adjective and adverb."""
    for part in ("noun", "verb", "adj", "adv"):
        with open(f"/usr/share/wordnet/data.{part}", errors="ignore") as lines:
            for line in lines:
                if line.startswith("  "):
                    continue
                left, _, gloss = line.partition("|")
                words = left.split()
                lemmas = [words[4 + 2 * i].replace("_", " ") for i in range(int(words[3], 16))]
                definition = gloss.split('; "')[0].strip()
                if len(definition.split()) >= 4:
                    yield part + words[0], lemmas, definition


def synonyms_of(synsets):
    """For words with one sense only: the other lemmas of that sense."""
    senses = {}
    for _, lemmas, _ in synsets:
        for lemma in lemmas:
            senses.setdefault(lemma.lower(), []).append(lemmas)
    return {word: [other for other in of[0] if other.lower() != word] for word, of in senses.items()
            if len(of) == 1 and len(of[0]) > 1}


def reworded(rng, definition, synonyms):
    text = definition
    if rng.random() < 0.5:
        text = re.sub(r"\s*\([^)]*\)", "", text) or definition
    words = text.split()
    places = [i for i, word in enumerate(words) if len(word) > 3 and word.lower() in synonyms]
    if places and rng.random() < 0.7:
        place = rng.choice(places)
        words[place] = rng.choice(synonyms[words[place].lower()])
        text = " ".join(words)
    clauses = text.split("; ")
    if len(clauses) > 1 and rng.random() < 0.5:
        text = rng.choice(clauses) if rng.random() < 0.5 else "; ".join(reversed(clauses))
    return rng.choice(FRAMES).format(text)


def main():
    rng = random.Random(20)
    synsets = list(read_synsets())
    synonyms = synonyms_of(synsets)
    # Whole neighbourhoods of the files, not single synsets: neighbours there are of one lexicographer and look alike.
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    starts = rng.sample(range(0, len(synsets) - 50, 50), count // 50)
    rows = []
    for start in starts:
        for synset, _, definition in synsets[start:start + 50]:
            rows.append((synset, definition))
            for _ in range(rng.choice([0, 0, 1, 2]) if rng.random() < 0.8 else 0):
                rows.append((synset, reworded(rng, definition, synonyms)))
    with open(sys.argv[1], "w") as out:
        for synset, text in rows:
            out.write(f"{synset}\twords\t{synset}\t{text}\n")


if __name__ == "__main__":
    main()
