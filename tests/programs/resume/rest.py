"""Reads a job from standard input and writes the digests of the rest."""

import json
import sys

from differential.pipelines import OURS, build, rest

job = json.load(sys.stdin)
loader = build(job["description"], OURS, worker_count=job["workers"])
state, done = job["state"].encode(), job["done"]
print(json.dumps(rest(loader, job["description"], state, done)))
