package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

type fairnessCase struct {
	Source   string `json:"source"`
	Yielding int    `json:"yielding"`
}

type fairnessFigures struct {
	FirstRunMs    float64 `json:"first_run_ms"`
	FirstRunMsMax float64 `json:"first_run_ms_max"`
	Probes        int     `json:"probes"`
	Starved       uint64  `json:"starved"`
}

const (
	giveUp  = 5 * time.Second
	between = 5 * time.Millisecond
	asleep  = 3 * time.Millisecond
)

// outside starts a process that writes every now and then what time it is; the channel says how long each took to arrive.
func outside(took chan<- time.Duration) (func(), error) {
	clock := exec.Command("sh", "-c", "while date +%s%N; do sleep 0.01; done")
	text, err := clock.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := clock.Start(); err != nil {
		return nil, err
	}
	go func() {
		lines := bufio.NewReader(text)
		for {
			line, err := lines.ReadString('\n')
			now := time.Now()
			sent, problem := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
			if err != nil || problem != nil {
				return
			}
			took <- now.Sub(time.Unix(0, sent))
		}
	}()
	return func() { clock.Process.Kill() }, nil
}

func sleeper(took chan<- time.Duration) {
	for {
		begin := time.Now()
		time.Sleep(asleep)
		took <- time.Since(begin) - asleep
		time.Sleep(between)
	}
}

func fairness(told trial) (any, error) {
	var of fairnessCase
	if err := json.Unmarshal(told.Case, &of); err != nil {
		return nil, err
	}
	took := make(chan time.Duration, 1024)
	stopOutside := func() {}
	if of.Source == "io" {
		var err error
		if stopOutside, err = outside(took); err != nil {
			return nil, err
		}
	} else {
		go sleeper(took)
	}
	defer stopOutside()
	var counted atomic.Uint64
	yield := func() {
		for {
			runtime.Gosched()
			counted.Add(1)
		}
	}
	for left := of.Yielding; left > 0; left -= perMaker {
		go func() {
			for range min(left, perMaker) {
				go yield()
			}
		}()
	}
	time.Sleep(time.Duration((0.2 + float64(of.Yielding)*1e-6) * 1e9))
	for len(took) > 0 {
		<-took
	}
	before := counted.Load()
	var all []float64
	starved := uint64(0)
	for end := time.Now().Add(time.Duration(told.Secs * 1e9)); starved == 0 && (len(all) == 0 || time.Now().Before(end)); {
		select {
		case one := <-took:
			all = append(all, float64(one)/1e6)
		case <-time.After(giveUp):
			all = append(all, float64(giveUp)/1e6)
			starved++
		}
	}
	if counted.Load() == before {
		return nil, fmt.Errorf("the goroutines that should yield did not")
	}
	sort.Float64s(all)
	return fairnessFigures{all[len(all)/2], all[len(all)-1], len(all), starved}, nil
}
