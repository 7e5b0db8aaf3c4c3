// The colors on Boost.Asio: the workloads of `bench colors`, a strand per color. The state, the work and the check are those
// of colors/ledger.rs, and so are the names.
//
// A strand around the executor of one io_context, which all threads run; one thread is told so (concurrency hint 1). A callback
// is asio::post to the strand of its color. The memory of a callback comes from a list of the thread's own: Asio's
// default keeps one block, and asks malloc where more are in flight.

#include <boost/asio.hpp>
#include <sys/resource.h>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace asio = boost::asio;
using u64 = std::uint64_t;
using Strand = asio::strand<asio::io_context::executor_type>;
constexpr auto relaxed = std::memory_order_relaxed;

constexpr u64 BURST = 64, W2_BURSTS = 16, W3_BURSTS = 2;

// The blocks that a thread has freed, for its next callbacks. Where another thread takes them, no more than some are kept.
struct FreeBlocks {
    static constexpr std::size_t LEN = 192, KEPT_MAX = 4096;
    struct Block { Block* next; };
    Block* first = nullptr;
    std::size_t kept = 0;

    void* take() {
        Block* block = first;
        if (!block) return std::malloc(LEN);
        first = block->next;
        --kept;
        return block;
    }

    void give(void* memory) {
        if (kept == KEPT_MAX) return std::free(memory);
        first = new (memory) Block{first};
        ++kept;
    }
};

thread_local FreeBlocks free_blocks;

template <class T>
struct Recycling {
    using value_type = T;
    Recycling() = default;
    template <class U> Recycling(const Recycling<U>&) noexcept {}
    T* allocate(std::size_t count) {
        static_assert(sizeof(T) <= FreeBlocks::LEN, "a callback is larger than a block");
        if (count != 1) std::abort();
        return static_cast<T*>(free_blocks.take());
    }
    void deallocate(T* memory, std::size_t) noexcept { free_blocks.give(memory); }
    template <class U> bool operator==(const Recycling<U>&) const noexcept { return true; }
    template <class U> bool operator!=(const Recycling<U>&) const noexcept { return false; }
};

template <class F>
struct Callback {
    using allocator_type = Recycling<void>;
    F body;
    allocator_type get_allocator() const noexcept { return {}; }
    void operator()() { body(); }
};

template <class F>
void post(Strand& to, F body) {
    asio::post(to, Callback<F>{std::move(body)});
}

// The state of one color, far from its neighbors.
struct alignas(512) Lane {
    std::atomic<u64> count{0}, breaks{0}, due{0};

    void step(u64 expected, u64 rounds) {
        u64 now = count.load(relaxed);
        if (now != expected) breaks.store(breaks.load(relaxed) + 1, relaxed);
        spin(rounds);
        count.store(now + 1, relaxed);
    }

    void step_unordered() { count.store(count.load(relaxed) + 1, relaxed); }

    // The work: each multiplication waits for the one before, also across the spins of one thread.
    static void spin(u64 rounds) {
        if (rounds == 0) return;
        thread_local u64 last = 1;
        u64 value = last;
        for (u64 round = 0; round < rounds; ++round) value = value * 6364136223846793005u + 1;
        asm volatile("" : "+r"(value));
        last = value;
    }
};

struct Run {
    std::string workload = "w1";
    u64 colors = 16, in_flight = 1, rounds = 0, tokens = 0;
    std::vector<Lane> lanes, posters;
    std::vector<Strand> strands, poster_strands;
    Lane counter;
    std::vector<Strand> counter_strand;
    alignas(128) std::atomic<bool> stop{false};
    alignas(128) std::atomic<u64> finished{0};

    bool stopping() const { return stop.load(relaxed); }
    void finish() { finished.fetch_add(1, std::memory_order_release); }

    bool start(asio::io_context& context) {
        lanes = std::vector<Lane>(colors);
        auto make = [&](u64 count) {
            std::vector<Strand> made;
            for (u64 index = 0; index < count; ++index) made.emplace_back(asio::make_strand(context));
            return made;
        };
        strands = make(colors);
        if (workload == "w1") return start_w1();
        if (workload == "w4") return start_w4();
        u64 count = workload == "w2" ? 1 : colors;
        posters = std::vector<Lane>(count);
        poster_strands = make(count);
        counter_strand = make(1);
        if (workload == "w2") return start_w2();
        return workload == "w3" && start_w3();
    }

    bool start_w1() {
        for (u64 index = 0; index < colors; ++index)
            for (u64 token = 0; token < in_flight; ++token) post_w1(index, token);
        tokens = colors * in_flight;
        return true;
    }

    void post_w1(u64 index, u64 expected) {
        post(strands[index], [this, index, expected] {
            if (stopping()) {
                lanes[index].due.fetch_add(expected / in_flight, relaxed);
                return finish();
            }
            lanes[index].step(expected, rounds);
            post_w1(index, expected + in_flight);
        });
    }

    bool start_w2() {
        for (u64 burst = 0; burst < W2_BURSTS; ++burst) post_burst_w2();
        tokens = W2_BURSTS;
        return true;
    }

    void post_burst_w2() {
        post(poster_strands[0], [this] {
            if (stopping()) return finish();
            u64 start = posters[0].count.load(relaxed), index = start % colors, round = start / colors;
            for (u64 left = BURST; left-- > 0;) {
                post(strands[index], [this, index, round, last = left == 0] {
                    lanes[index].step(round, rounds);
                    if (last) post_burst_w2();
                });
                if (++index == colors) index = 0, ++round;
            }
            posters[0].count.store(start + BURST, relaxed);
        });
    }

    bool start_w3() {
        for (u64 poster = 0; poster < colors; ++poster)
            for (u64 burst = 0; burst < W3_BURSTS; ++burst) post_burst_w3(poster);
        tokens = colors * W3_BURSTS;
        return true;
    }

    void post_burst_w3(u64 poster) {
        post(poster_strands[poster], [this, poster] {
            if (stopping()) return finish();
            u64 start = posters[poster].count.load(relaxed);
            for (u64 number = start; number < start + BURST; ++number) {
                post(counter_strand[0], [this, poster, number, last = number + 1 == start + BURST] {
                    lanes[poster].step(number, rounds);
                    counter.step_unordered();
                    if (last) post_burst_w3(poster);
                });
            }
            posters[poster].count.store(start + BURST, relaxed);
        });
    }

    bool start_w4() {
        for (u64 token = 0; token < in_flight; ++token) post_w4(0, token);
        tokens = in_flight;
        return true;
    }

    void post_w4(u64 side, u64 expected) {
        post(strands[side], [this, side, expected] {
            if (stopping()) {
                u64 visits = expected / in_flight;
                lanes[0].due.fetch_add(visits + side, relaxed);
                lanes[1].due.fetch_add(visits, relaxed);
                return finish();
            }
            lanes[side].step(expected, rounds);
            post_w4(1 - side, expected + side * in_flight);
        });
    }

    u64 ops() const {
        if (workload == "w3") return counter.count.load(relaxed);
        u64 sum = 0;
        for (auto& lane : lanes) sum += lane.count.load(relaxed);
        return sum;
    }

    u64 order_breaks() const {
        u64 sum = 0;
        for (auto& lane : lanes) sum += lane.breaks.load(relaxed);
        return sum;
    }

    // Sets what each color must have run, from the final positions of the posters.
    void settle_posted() {
        for (u64 index = 0; index < colors; ++index) {
            if (workload == "w2") {
                u64 posted = posters[0].count.load(relaxed);
                lanes[index].due.store(posted / colors + (index < posted % colors), relaxed);
            } else if (workload == "w3") {
                u64 posted = posters[index].count.load(relaxed);
                lanes[index].due.store(posted, relaxed);
                counter.due.fetch_add(posted, relaxed);
            }
        }
    }

    std::string wrong_count() const {
        for (u64 index = 0; index <= colors; ++index) {
            auto& lane = index < colors ? lanes[index] : counter;
            u64 count = lane.count.load(relaxed), due = lane.due.load(relaxed);
            if (count != due)
                return "color " + std::to_string(index) + " counted " + std::to_string(count) + " callbacks and " +
                       std::to_string(due) + " were due: two overlapped, or some were lost";
        }
        return "";
    }

    // Waits until all chains have ended and all that is due has run; what is wrong then.
    std::string verify() {
        auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        auto late = [&] { return std::chrono::steady_clock::now() > end; };
        auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
        for (; finished.load(std::memory_order_acquire) < tokens; pause())
            if (late())
                return std::to_string(finished.load()) + " of " + std::to_string(tokens) +
                       " chains ended within 10s: callbacks were lost or starved";
        settle_posted();
        for (; !wrong_count().empty(); pause())
            if (late()) return wrong_count();
        if (u64 breaks = order_breaks()) return std::to_string(breaks) + " callbacks ran out of order";
        return ops() == 0 ? "no callback ran" : "";
    }
};

struct Used {
    double cpu_ns;
    long wakes, switches;

    static Used now() {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        auto ns = [](timeval time) { return time.tv_sec * 1e9 + time.tv_usec * 1e3; };
        return {ns(usage.ru_utime) + ns(usage.ru_stime), usage.ru_nvcsw, usage.ru_nvcsw + usage.ru_nivcsw};
    }
};

static void measure(Run& run, double secs) {
    auto sleep = [](double secs) { std::this_thread::sleep_for(std::chrono::duration<double>(secs)); };
    sleep(std::min(std::max(secs / 4, 0.1), 0.5));
    auto used = Used::now();
    u64 ops = run.ops();
    auto begin = std::chrono::steady_clock::now();
    sleep(secs);
    ops = run.ops() - ops;
    secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    auto after = Used::now();
    run.stop.store(true, relaxed);
    std::string problem = run.verify();
    if (problem.empty() && ops == 0)
        problem = "no callback ran while it was measured: is the machine busy? pass more --secs";
    auto each = [&](double count) { return ops ? count / static_cast<double>(ops) : 0.0; };
    std::printf("{\"secs\":%g,\"rate_per_s\":%g,\"cpu_ns_per_op\":%g,\"switches_per_op\":%g,\"wakes_per_op\":%g", secs,
                ops / secs, each(after.cpu_ns - used.cpu_ns), each(after.switches - used.switches),
                each(after.wakes - used.wakes));
    std::printf(",\"order_breaks\":%" PRIu64 "%s%s%s}\n", run.order_breaks(), problem.empty() ? "" : ",\"problem\":\"",
                problem.c_str(), problem.empty() ? "" : "\"");
    std::fflush(stdout);
}

// Told what the process of a trial of Dapple is told too.
int main(int count, char** args) {
    static Run run;
    double secs = 1;
    int workers = 1;
    for (int at = 1; at + 1 < count; at += 2) {
        std::string flag = args[at], value = args[at + 1];
        if (flag == "--workload") run.workload = value;
        else if (flag == "--colors") run.colors = std::stoull(value);
        else if (flag == "--in-flight") run.in_flight = std::stoull(value);
        else if (flag == "--spin-rounds") run.rounds = std::stoull(value);
        else if (flag == "--secs") secs = std::stod(value);
        else if (flag == "--workers") workers = std::stoi(value);
        else return std::fprintf(stderr, "asio: unknown flag %s\n", args[at]), 2;
    }
    static asio::io_context context(workers);
    static auto stays = asio::make_work_guard(context);
    if (!run.start(context)) return std::fprintf(stderr, "asio: no form of %s\n", run.workload.c_str()), 2;
    for (int worker = 0; worker < workers; ++worker) std::thread([] { context.run(); }).detach();
    measure(run, secs);
    // How it stops is not measured.
    std::_Exit(0);
}
