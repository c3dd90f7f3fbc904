// Runs the scenarios that it is told, a few at a time, and prints one JSON line for each:
// {"name": …, "ok": …, "seconds": …, "error": …}. Arguments: bootstrap, then names.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

const (
	atATime = 4
	timeout = 3 * 75 * time.Second // of one scenario; `wait` ends what waits in vain
)

type result struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Error   *string `json:"error"`
}

var scenarios = map[string]func(*Kit){}

func register(more map[string]func(*Kit)) {
	for name, scenario := range more {
		scenarios[name] = scenario
	}
}

func runOne(bootstrap, name string) (outcome result) {
	started := time.Now()
	outcome = result{Name: name, OK: true}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	defer func() {
		if failed := recover(); failed != nil {
			text := fmt.Sprintf("%v\n%s", failed, debug.Stack())
			outcome.OK, outcome.Error = false, &text
		}
		outcome.Seconds = time.Since(started).Seconds()
	}()
	scenario, known := scenarios[name]
	check(known, "no scenario has this name")
	kit := newKit(ctx, bootstrap, name)
	defer kit.close()
	scenario(kit)
	return outcome
}

func main() {
	names := make(chan string)
	var printing sync.Mutex
	var work sync.WaitGroup
	for range atATime {
		work.Add(1)
		go func() {
			defer work.Done()
			for name := range names {
				line, err := json.Marshal(runOne(os.Args[1], name))
				must(err)
				printing.Lock()
				fmt.Println(string(line))
				printing.Unlock()
			}
		}()
	}
	for _, name := range os.Args[2:] {
		names <- name
	}
	close(names)
	work.Wait()
}
