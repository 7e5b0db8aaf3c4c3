// Command porcupine reads the history of a store, one JSON object a line, and says whether it is linearizable.
//
// The order of the lines is that of time: a client writes a line before it calls and one after it has the answer.
// A line with "call" begins an operation, a line with "end" gives its outcome. An operation without an end, or with an
// unknown one, may have happened at any time after its call, or never. Every written value is different from all others, so
// a value stands for its version, and a condition on a version is one on that value.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// One line of the history. Values are greater than 0; 0 stands for a key without a value.
type line struct {
	Call   *uint64 `json:"call"`
	End    *uint64 `json:"end"`
	Client int     `json:"client"`
	Op     string  `json:"op"`
	Key    int     `json:"key"`
	Expect uint64  `json:"expect"`
	Value  uint64  `json:"value"`
	// "ok", "conflict" (without the value that is there), "not" (not applied) or "unknown".
	Outcome string `json:"outcome"`
	Found   uint64 `json:"found"`
}

type beginning struct {
	line line
	at   int64
}

type input struct {
	op            string
	key           int
	expect, value uint64
}

type output struct {
	outcome string
	found   uint64
}

// The state of one key is its value.
func step(state, in, out any) (bool, any) {
	value, input, output := state.(uint64), in.(input), out.(output)
	next := value
	applies := true
	switch input.op {
	case "put":
		next = input.value
	case "remove":
		next = 0
	case "cas":
		applies = value == input.expect
		if applies {
			next = input.value
		}
	}
	switch output.outcome {
	case "unknown":
		return true, next
	case "conflict":
		return !applies, value
	default:
		return applies && value == output.found, next
	}
}

func partition(all []porcupine.Operation) [][]porcupine.Operation {
	keys := map[int][]porcupine.Operation{}
	for _, operation := range all {
		key := operation.Input.(input).key
		keys[key] = append(keys[key], operation)
	}
	var parts [][]porcupine.Operation
	for _, part := range keys {
		parts = append(parts, part)
	}
	return parts
}

var model = porcupine.Model{
	Partition: partition,
	Init:      func() any { return uint64(0) },
	Step:      step,
}

func read(file *os.File) ([]porcupine.Operation, int, error) {
	begun := map[uint64]beginning{}
	var operations []porcupine.Operation
	var now int64
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var next line
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			// A process that is killed may leave half a line.
			continue
		}
		now++
		if next.Call != nil {
			begun[*next.Call] = beginning{next, now}
			continue
		}
		if next.End == nil {
			continue
		}
		call, known := begun[*next.End]
		if !known {
			return nil, 0, fmt.Errorf("operation %d ends and was not begun", *next.End)
		}
		if next.Outcome == "unknown" {
			// Stays open.
			continue
		}
		delete(begun, *next.End)
		if next.Outcome != "not" {
			operations = append(operations, operation(call, now, output{next.Outcome, next.Found}))
		}
	}
	open := len(begun)
	for _, call := range begun {
		if call.line.Op != "get" {
			operations = append(operations, operation(call, now+1, output{"unknown", 0}))
		}
	}
	return operations, open, lines.Err()
}

func operation(call beginning, end int64, out output) porcupine.Operation {
	in := input{call.line.Op, call.line.Key, call.line.Expect, call.line.Value}
	return porcupine.Operation{ClientId: call.line.Client, Input: in, Call: call.at, Output: out, Return: end}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: porcupine HISTORY")
		os.Exit(3)
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	operations, open, err := read(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	result := porcupine.CheckOperationsTimeout(model, operations, 10*time.Minute)
	fmt.Printf("%s: %d operations, %d without an outcome\n", result, len(operations), open)
	switch result {
	case porcupine.Ok:
	case porcupine.Illegal:
		os.Exit(1)
	default:
		os.Exit(2)
	}
}
