package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

const cgroup = "/sys/fs/cgroup/"

func burn() error {
	for {
	}
}

func watch() error {
	go func() { _ = burn() }()
	last := ""
	for {
		limit, err := read("cpu.max")
		if err != nil {
			return err
		}
		if limit != last {
			stat, err := read("cpu.stat")
			if err != nil {
				return err
			}
			pressure, err := read("cpu.pressure")
			if err != nil {
				return err
			}
			fmt.Printf("cpu.max %s; %s; %s\n", limit, stat, pressure)
			last = limit
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func read(name string) (string, error) {
	raw, err := os.ReadFile(cgroup + name)
	return strings.Join(strings.Fields(string(raw)), " "), err
}
