#!/usr/bin/python3
"""risk_pairs.py KIND OUT.tsv FILE... - streams of real questions for risk.sh, from public files that the caller has:
lines of part, category, answer and text.

  banking   train.csv test.csv of BANKING77 (Casanueva et al. 2020, CC BY 4.0): questions to a bank, 77 intents
  medical   mqp.csv (McCreery et al. 2020): questions of patients, each with one that means the same and one that only
            looks alike, both written by doctors
  news      msr-para-*.tsv (Dolan and Brockett 2005): pairs of sentences of news, the same or only alike

Texts that are marked as the same, directly or through others, share an answer; every other text has one of its own.
"""
import csv
import sys


class Answers:
    """Texts and which of them mean the same (union-find)."""

    def __init__(self):
        self.parent = {}

    def find(self, text):
        self.parent.setdefault(text, text)
        while self.parent[text] != text:
            self.parent[text] = text = self.parent[self.parent[text]]
        return text

    def add(self, a, b, same):
        a, b = self.find(a), self.find(b)
        if same:
            self.parent[a] = b


def clean(text):
    return " ".join(text.split())


def banking(paths):
    for path in paths:
        with open(path, newline="") as lines:
            for row in csv.DictReader(lines):
                yield row["category"], clean(row["text"])


def pairs(rows):
    answers = Answers()
    for same, a, b in rows:
        answers.add(clean(a), clean(b), same)
    names = {}
    for text in answers.parent:
        yield names.setdefault(answers.find(text), f"a{len(names)}"), text


def medical(paths):
    with open(paths[0], newline="") as lines:
        yield from pairs((row[3] == "1", row[1], row[2]) for row in csv.reader(lines))


def read_news(paths):
    for path in paths:
        with open(path, encoding="utf-8-sig") as lines:
            for line in list(lines)[1:]:
                same, _, _, a, b = line.rstrip("\n").split("\t")
                yield same == "1", a, b


def main():
    kind, out, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    rows = {"banking": banking, "medical": medical, "news": lambda of: pairs(read_news(of))}[kind](paths)
    with open(out, "w") as file:
        for answer, text in rows:
            file.write(f"-\t{kind}\t{answer}\t{text}\n")


if __name__ == "__main__":
    main()
