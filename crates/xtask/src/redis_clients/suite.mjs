// The suite of ioredis: `suite.mjs PORT`.

import assert from "node:assert/strict";
import Redis from "ioredis";

const port = Number(process.argv[2]);
const redis = new Redis({ port });
const listener = new Redis({ port });

await redis.flushall();
assert.equal(await redis.set("s", "one"), "OK");
assert.equal(await redis.get("s"), "one");
assert.equal(await redis.set("s", "two", "NX"), null);
assert.equal(await redis.set("s", "two", "EX", 100, "GET"), "one");
assert.ok((await redis.ttl("s")) > 90);
assert.deepEqual(await redis.mget("s", "none"), ["two", null]);
assert.equal(await redis.incrby("n", 5), 5);
assert.deepEqual(await redis.getBuffer("s"), Buffer.from("two"));

assert.equal(await redis.hset("h", { x: 1, y: 2 }), 2);
assert.deepEqual(await redis.hgetall("h"), { x: "1", y: "2" });
await assert.rejects(redis.get("h"), /WRONGTYPE/);

assert.deepEqual(await redis.pipeline().set("p", 1).incr("p").exec(), [[null, "OK"], [null, 2]]);
assert.deepEqual(await redis.multi().set("p", 5).get("p").exec(), [[null, "OK"], [null, "5"]]);
await redis.watch("p");
await listener.set("p", 6);
assert.equal(await redis.multi().set("p", 7).exec(), null);

await redis.mset(Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`key:${at}`, at])));
const found = [];
for await (const keys of redis.scanStream({ match: "key:*", count: 7 })) {
  found.push(...keys);
}
assert.equal(new Set(found).size, 50);

redis.disconnect();
listener.disconnect();
