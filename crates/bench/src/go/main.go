// The peers in Go. The program is told one trial as JSON, runs it, and prints its figures as one line of JSON, or what is
// wrong where its check failed.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// trial is what the bench tells of one trial.
type trial struct {
	Experiment string          `json:"experiment"`
	Secs       float64         `json:"secs"`
	Case       json.RawMessage `json:"case"`
}

// answer is what it prints.
type answer struct {
	Figures any    `json:"figures"`
	Problem string `json:"problem,omitempty"`
}

var experiments = map[string]func(trial) (any, error){
	"fairness": fairness,
	"fifo":     fifo,
	"memory":   memory,
	"timers":   timers,
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "go:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		return serveWeb(os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == "spin" {
		return serveSpin(os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == "colors" {
		return runColors(os.Args[2:])
	}
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: %s TRIAL, which is JSON", os.Args[0])
	}
	var told trial
	if err := json.Unmarshal([]byte(os.Args[1]), &told); err != nil {
		return err
	}
	measure, known := experiments[told.Experiment]
	if !known {
		return fmt.Errorf("no experiment is called %s", told.Experiment)
	}
	figures, err := measure(told)
	if err != nil {
		return json.NewEncoder(os.Stdout).Encode(answer{Problem: err.Error()})
	}
	return json.NewEncoder(os.Stdout).Encode(answer{Figures: figures})
}

// ownCPU is the user and system time of this process so far.
func ownCPU() time.Duration {
	usage := ownUsage()
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// kibibytes reads a line such as "Anonymous: 12 kB" of a file below /proc.
func kibibytes(file, field string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		rest, found := strings.CutPrefix(line, field+":")
		if found {
			return strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		}
	}
	return 0, fmt.Errorf("no line %s in %s", field, file)
}

// ownMemory is the anonymous resident memory of this process, in bytes.
func ownMemory() (uint64, error) {
	kib, err := kibibytes("/proc/self/smaps_rollup", "Anonymous")
	return kib * 1024, err
}
