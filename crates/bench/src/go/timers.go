package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

type timersCase struct {
	Timers  int `json:"timers"`
	Workers int `json:"workers"`
}

type timersFigures struct {
	InsertNs      float64 `json:"insert_ns"`
	RearmNs       float64 `json:"rearm_ns"`
	CancelNs      float64 `json:"cancel_ns"`
	BytesPerTimer float64 `json:"bytes_per_timer"`
	LateMsMean    float64 `json:"late_ms_mean"`
	LateMsMax     float64 `json:"late_ms_max"`
	Secs          float64 `json:"secs"`
}

const far = 120 * time.Second

// As in timers/mod.rs.
const spread = 4.0

// together lets every worker handle its share at the same time, and returns the nanoseconds of all of them.
func together(shares [][]*time.Timer, handle func([]*time.Timer, *rand.Rand)) float64 {
	var done sync.WaitGroup
	var ns atomic.Int64
	for worker, share := range shares {
		done.Add(1)
		go func() {
			defer done.Done()
			random := rand.New(rand.NewSource(int64(worker) + 1))
			begin := time.Now()
			handle(share, random)
			ns.Add(int64(time.Since(begin)))
		}()
	}
	done.Wait()
	return float64(ns.Load())
}

func timers(told trial) (any, error) {
	var of timersCase
	if err := json.Unmarshal(told.Case, &of); err != nil {
		return nil, err
	}
	shares := make([][]*time.Timer, of.Workers)
	for worker := range shares {
		size := of.Timers / of.Workers
		if worker < of.Timers%of.Workers {
			size++
		}
		shares[worker] = make([]*time.Timer, size)
	}
	var elapsed atomic.Int64
	fire := func() { elapsed.Add(1) }
	before, err := ownMemory()
	if err != nil {
		return nil, err
	}
	later := func(random *rand.Rand) time.Duration { return far + time.Duration(random.Int63n(int64(far))) }
	insert := together(shares, func(share []*time.Timer, random *rand.Rand) {
		for index := range share {
			share[index] = time.AfterFunc(later(random), fire)
		}
	})
	after, err := ownMemory()
	if err != nil {
		return nil, err
	}
	// In random order, as they are moved in the order in which something happens.
	order := rand.New(rand.NewSource(3)).Perm(len(shares[0]))
	rearm := together(shares, func(share []*time.Timer, random *rand.Rand) {
		for _, index := range order {
			// The first share is the largest.
			if index >= len(share) {
				continue
			}
			share[index].Reset(later(random))
		}
	})
	cancel := together(shares, func(share []*time.Timer, _ *rand.Rand) {
		for _, timer := range share {
			timer.Stop()
		}
	})
	if count := elapsed.Load(); count != 0 {
		return nil, fmt.Errorf("%d timers elapsed a minute early", count)
	}
	all := float64(of.Timers)
	figures := timersFigures{
		InsertNs:      insert / all,
		RearmNs:       rearm / all,
		CancelNs:      cancel / all,
		BytesPerTimer: (float64(after) - float64(before)) / all,
		Secs:          told.Secs * spread,
	}
	// What the stopped timers leave behind is not to make those late that fire.
	runtime.GC()
	err = figures.lateness(of.Timers, told.Secs*spread)
	return figures, err
}

// lateness starts as many timers, with deadlines spread over so many seconds.
func (figures *timersFigures) lateness(count int, secs float64) error {
	var sum, most, fired, early atomic.Int64
	random := rand.New(rand.NewSource(7))
	base := time.Now().Add(time.Duration((0.2 + float64(count)*4e-6) * 1e9))
	for made := 0; made < count; made++ {
		deadline := base.Add(time.Duration(random.Float64() * secs * 1e9))
		time.AfterFunc(time.Until(deadline), func() {
			late := int64(time.Since(deadline))
			if late < 0 {
				early.Add(1)
			}
			sum.Add(late)
			for now := most.Load(); late > now && !most.CompareAndSwap(now, late); now = most.Load() {
			}
			fired.Add(1)
		})
	}
	if time.Now().After(base) {
		return fmt.Errorf("making the timers took longer than until the first was due: is the machine busy?")
	}
	for end := time.Now().Add(time.Minute); fired.Load() < int64(count) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if fired.Load() != int64(count) || early.Load() != 0 {
		return fmt.Errorf("%d of %d timers fired, %d of them early", fired.Load(), count, early.Load())
	}
	figures.LateMsMean = float64(sum.Load()) / float64(count) / 1e6
	figures.LateMsMax = float64(most.Load()) / 1e6
	return nil
}
