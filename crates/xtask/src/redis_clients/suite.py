"""The suite of redis-py: `suite.py PORT`, in both versions of the protocol."""

import sys

import redis


def strings(r):
    assert r.set("s", "one") is True
    assert r.get("s") == b"one"
    assert r.set("s", "two", nx=True) is None
    assert r.set("s", "two", get=True) == b"one"
    assert r.append("s", "!") == 4
    assert r.strlen("s") == 4
    assert r.getrange("s", 0, 2) == b"two"
    assert r.setrange("s", 3, "?") == 4
    assert r.getdel("s") == b"two?"
    assert r.mset({"a": "1", "b": "2"}) is True
    assert r.mget("a", "b", "none") == [b"1", b"2", None]
    assert r.incr("n") == 1 and r.incrby("n", 9) == 10 and r.decr("n") == 9
    assert r.delete("a", "b", "none") == 2


def expiry(r):
    r.set("e", "x", ex=100)
    assert 90 < r.ttl("e") <= 100
    assert r.persist("e") and r.ttl("e") == -1
    assert r.expire("e", 50) and 0 < r.pttl("e") <= 50_000
    assert r.getex("e", persist=True) == b"x" and r.ttl("e") == -1
    assert r.ttl("none") == -2


def hashes(r):
    assert r.hset("h", mapping={"x": "1", "y": "2"}) == 2
    assert r.hgetall("h") == {b"x": b"1", b"y": b"2"}
    assert r.hincrby("h", "x", 4) == 5
    assert r.hmget("h", "x", "none") == [b"5", None]
    assert sorted(r.hkeys("h")) == [b"x", b"y"] and r.hlen("h") == 2
    assert r.hdel("h", "x") == 1 and not r.hexists("h", "x")
    assert r.type("h") == b"hash"


def keys(r):
    r.mset({f"key:{number}": number for number in range(100)})
    assert len(list(r.scan_iter(match="key:*", count=7))) == 100
    assert sorted(r.keys("key:1?")) == [b"key:1%d" % digit for digit in range(10)]
    assert r.rename("key:1", "key:one") and r.exists("key:1", "key:one") == 1
    assert r.randomkey() is not None


def transactions(r):
    with r.pipeline() as pipe:
        pipe.set("t", 1).incr("t").get("t")
        assert pipe.execute() == [True, 2, b"2"]
    with r.pipeline() as pipe:
        pipe.watch("t")
        r.set("t", 7)
        pipe.multi()
        pipe.set("t", 8)
        try:
            pipe.execute()
            raise AssertionError("a watched key changed")
        except redis.WatchError:
            pass
    assert r.get("t") == b"7"

    def double(pipe):
        value = int(pipe.get("t"))
        pipe.multi()
        pipe.set("t", value * 2)

    assert r.transaction(double, "t") == [True]
    assert r.get("t") == b"14"


def errors(r):
    r.hset("h", "x", "1")
    for wrong, text in [
        (lambda: r.get("h"), "Operation against a key holding the wrong kind of value"),
        (lambda: r.execute_command("NOSUCH", "a"), "unknown command 'NOSUCH'"),
        (lambda: r.execute_command("GET"), "wrong number of arguments for 'get' command"),
    ]:
        try:
            wrong()
            raise AssertionError("no error: " + text)
        except redis.ResponseError as error:
            assert text in str(error), error


def main():
    for protocol in (2, 3):
        r = redis.Redis(port=int(sys.argv[1]), protocol=protocol)
        for suite in (strings, expiry, hashes, keys, transactions, errors):
            r.flushall()
            suite(r)
        assert r.info()["redis_version"]
        assert r.config_get("appendonly") == {"appendonly": "yes"}


main()
