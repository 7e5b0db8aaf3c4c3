package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

type memoryCase struct {
	Threads int `json:"threads"`
	Workers int `json:"workers"`
}

type memoryFigures struct {
	BytesPerThread float64 `json:"bytes_per_thread"`
	YieldsPerS     float64 `json:"yields_per_s"`
	CPUNsPerYield  float64 `json:"cpu_ns_per_yield"`
	SpawnsPerS     float64 `json:"spawns_per_s"`
	YieldsMin      uint64  `json:"yields_min"`
	YieldsMax      uint64  `json:"yields_max"`
	NeverRan       uint64  `json:"never_ran"`
	Secs           float64 `json:"secs"`
}

var (
	stop    atomic.Bool
	started atomic.Uint64
	ended   atomic.Uint64
	// All but the last few of each goroutine: counting each one here would cost more than the yield.
	yielded      atomic.Uint64
	endedYields  atomic.Uint64
	endedMin     atomic.Uint64
	endedMax     atomic.Uint64
	neverRan     atomic.Uint64
	shortMemory  atomic.Bool
	makersToWait atomic.Int64
)

// With few goroutines each yields often; with many, a coarser step would hide most yields.
var flushEvery uint32

func yields() {
	started.Add(1)
	count := uint32(0)
	for !stop.Load() {
		runtime.Gosched()
		count++
		if count%flushEvery == 0 {
			yielded.Add(uint64(flushEvery))
		}
	}
	yielded.Add(uint64(count % flushEvery))
	endedYields.Add(uint64(count))
	lower(&endedMin, uint64(count))
	raise(&endedMax, uint64(count))
	if count == 0 {
		neverRan.Add(1)
	}
	ended.Add(1)
}

func lower(of *atomic.Uint64, to uint64) {
	for now := of.Load(); to < now && !of.CompareAndSwap(now, to); now = of.Load() {
	}
}

func raise(of *atomic.Uint64, to uint64) {
	for now := of.Load(); to > now && !of.CompareAndSwap(now, to); now = of.Load() {
	}
}

// One goroutine that makes them all would be preempted every 10 ms and wait for all that it has made so far.
const perMaker = 1000

func makeShare(count int) {
	if kib, err := kibibytes("/proc/meminfo", "MemAvailable"); err == nil && kib < 1024*1024 {
		shortMemory.Store(true)
	}
	for made := 0; made < count && !shortMemory.Load(); made++ {
		go yields()
	}
	makersToWait.Add(-1)
}

func memory(told trial) (any, error) {
	var of memoryCase
	if err := json.Unmarshal(told.Case, &of); err != nil {
		return nil, err
	}
	flushEvery = 1
	if of.Threads < 100_000 {
		flushEvery = 8
	}
	endedMin.Store(^uint64(0))
	before, err := ownMemory()
	if err != nil {
		return nil, err
	}
	all := uint64(of.Threads)
	begin := time.Now()
	for left := of.Threads; left > 0; left -= perMaker {
		makersToWait.Add(1)
		go makeShare(min(left, perMaker))
	}
	for makersToWait.Load() > 0 {
		time.Sleep(500 * time.Microsecond)
	}
	spawning := time.Since(begin)
	if shortMemory.Load() {
		return nil, fmt.Errorf("memory is short after about %d goroutines: pass fewer --threads", started.Load())
	}
	for started.Load() < all {
		time.Sleep(500 * time.Microsecond)
	}
	time.Sleep(time.Duration(told.Secs / 4 * 1e9))
	count, cpu, begin := yielded.Load(), ownCPU(), time.Now()
	time.Sleep(time.Duration(told.Secs * 1e9))
	count, cpu = yielded.Load()-count, ownCPU()-cpu
	secs := time.Since(begin).Seconds()
	after, err := ownMemory()
	if err != nil {
		return nil, err
	}
	stop.Store(true)
	for ended.Load() < all {
		time.Sleep(500 * time.Microsecond)
	}
	if count == 0 || neverRan.Load() > 0 {
		return nil, fmt.Errorf("%d yields, and %d goroutines never ran", count, neverRan.Load())
	}
	if ended.Load() != all || endedYields.Load() != yielded.Load() {
		return nil, fmt.Errorf("%d of %d ended; %d yields instead of %d", ended.Load(), all, endedYields.Load(), yielded.Load())
	}
	return memoryFigures{
		BytesPerThread: (float64(after) - float64(before)) / float64(all),
		YieldsPerS:     float64(count) / secs,
		CPUNsPerYield:  float64(cpu.Nanoseconds()) / float64(count),
		SpawnsPerS:     float64(all) / spawning.Seconds(),
		YieldsMin:      endedMin.Load(),
		YieldsMax:      endedMax.Load(),
		NeverRan:       neverRan.Load(),
		Secs:           secs,
	}, nil
}
