//go:build wasip1

// Command guest does one thing, named by its first argument, so that a test
// can watch the sandbox do its part.
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	cmd, args := os.Args[1], os.Args[2:]
	do, ok := commands[cmd]
	if !ok {
		fail(errors.New("unknown command " + cmd))
	}
	do(args)
}

var sink int

var commands = map[string]func([]string){
	"exit":  func(a []string) { n, err := strconv.Atoi(a[0]); check(err); os.Exit(n) },
	"hello": func([]string) { fmt.Println("hello") },
	"args":  func([]string) { fmt.Printf("%q\n%q\n", os.Args, os.Environ()) },
	"both":  func([]string) { fmt.Print("to out"); fmt.Fprint(os.Stderr, "to err") },
	"stdin": func([]string) { b, err := io.ReadAll(os.Stdin); check(err); fmt.Print(len(b)) },
	"sleep": func(a []string) { d, err := time.ParseDuration(a[0]); check(err); time.Sleep(d) },
	"spin": func([]string) {
		fmt.Println("spinning")
		for {
			sink++
		}
	},
	"sleeps": func([]string) {
		fmt.Println("sleeping")
		for {
			time.Sleep(time.Hour)
		}
	},
	"flood": func([]string) {
		for {
			fmt.Println(strings.Repeat("x", 1000))
		}
	},
	"panic":  func([]string) { panic("on purpose") },
	"eat":    eat,
	"fill":   func(a []string) { fill(a[0]) },
	"sparse": func(a []string) { f := create(a[0]); check(f.Truncate(1 << 40)) },
	"unlinked": func(a []string) {
		for i := 0; ; i++ {
			f := create(filepath.Join(a[0], strconv.Itoa(i)))
			check(os.Remove(f.Name()))
			write(f, 1<<20)
			keep = append(keep, f)
			time.Sleep(5 * time.Millisecond)
		}
	},
	"escape":   func([]string) { escape() },
	"readonly": readonly,
	"observe":  func([]string) { observe() },
	"resume": func([]string) {
		b, err := os.ReadFile("/ckpt/state")
		fmt.Printf("%s %v %q\n", b, err, os.Getenv("LACUNA_RESUMED"))
		check(os.WriteFile("/ckpt/.state", []byte("next"), 0o600))
		check(os.Rename("/ckpt/.state", "/ckpt/state"))
	},
	"files": files,
	"names": func(a []string) {
		for _, name := range a {
			check(os.MkdirAll(filepath.Dir(name), 0o700))
			check(create(name).Close())
		}
	},
	"many": func(a []string) {
		n, err := strconv.Atoi(a[0])
		check(err)
		for i := range n {
			check(create(fmt.Sprintf("/out/%d", i)).Close())
		}
	},
}

var keep []*os.File

func eat(a []string) {
	step, err := strconv.Atoi(a[0])
	check(err)
	var held [][]byte
	for {
		b := make([]byte, step)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
		sink += len(held)
	}
}

func create(name string) *os.File {
	f, err := os.Create(name)
	check(err)
	return f
}

func write(f *os.File, n int) {
	_, err := f.Write(make([]byte, n))
	check(err)
}

func fill(dir string) {
	for i := 0; ; i++ {
		f := create(filepath.Join(dir, strconv.Itoa(i)))
		write(f, 64<<10)
		check(f.Close())
	}
}

// escape tries to reach the host and prints what it got hold of.
func escape() {
	for _, p := range []string{
		"/etc/passwd", "/out/../../../../etc/passwd", "../../etc/passwd", "/data/link", "/data/folder/passwd",
		"/data/../../secret", "/out/../rw/out", "/proc/self/status",
	} {
		if b, err := os.ReadFile(p); err == nil {
			fmt.Printf("read %d bytes of %s\n", len(b), p)
		}
		if _, err := os.Stat(p); err == nil {
			fmt.Printf("saw %s\n", p)
		}
	}
	for _, to := range []string{"/etc/passwd", "../../../../../../../../etc/passwd", "../../secret", "x"} {
		if err := os.Symlink(to, "/out/link"); err == nil {
			fmt.Println("linked to", to)
			_ = os.Remove("/out/link")
		}
	}
	for _, p := range []string{"/escaped", "/out/../escaped", "/data/x", "/etc/x"} {
		if err := os.WriteFile(p, nil, 0o600); err == nil {
			fmt.Println("wrote", p)
		}
	}
	if err := os.WriteFile("/out/a\nb", nil, 0o600); err == nil {
		fmt.Println("wrote a name with a line break")
	}
	fmt.Println("tried")
}

func readonly(a []string) {
	for _, p := range a {
		b, err := os.ReadFile(p)
		check(err)
		fmt.Printf("%s=%s\n", p, b)
		for name, err := range map[string]error{
			"write":    os.WriteFile(p, []byte("changed"), 0o600),
			"remove":   os.Remove(p),
			"truncate": os.Truncate(p, 0),
			"rename":   os.Rename(p, p+"2"),
			"mkdir":    os.Mkdir(p+"dir", 0o700),
		} {
			if err == nil {
				fmt.Println(name, p, "worked")
			}
		}
	}
}

// observe writes all that could differ between two runs.
func observe() {
	f := create("/out/seen")
	defer f.Close()
	start := time.Now()
	time.Sleep(time.Millisecond)
	fmt.Fprintln(f, start.UTC(), time.Since(start))
	random := make([]byte, 16)
	_, err := rand.Read(random)
	check(err)
	fmt.Fprintf(f, "%x\n", random)
	for k := range map[int]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 5} {
		fmt.Fprint(f, k)
	}
	check(filepath.Walk("/", func(p string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(f, "%s %v %d %v %+v\n", p, info.Mode(), info.Size(), info.ModTime().UTC(), info.Sys())
		return nil
	}))
	for _, dir := range []string{"/data", "/out", "/tmp"} {
		d, err := os.Open(dir)
		check(err)
		names, err := d.Readdirnames(-1)
		check(err)
		fmt.Fprintln(f, dir, names)
	}
	info, err := os.Stdout.Stat()
	check(err)
	fmt.Fprintf(f, "%v %+v\n", info.ModTime().UTC(), info.Sys())
}

// files uses the file system as an ordinary program does.
func files([]string) {
	check(os.MkdirAll("/out/a/b", 0o700))
	check(os.WriteFile("/out/a/b/c", []byte("0123456789"), 0o600))
	f, err := os.OpenFile("/out/a/b/c", os.O_RDWR|os.O_APPEND, 0)
	check(err)
	_, err = f.WriteString("ab")
	check(err)
	_, err = f.Seek(2, io.SeekStart)
	check(err)
	b := make([]byte, 3)
	_, err = io.ReadFull(f, b)
	check(err)
	fmt.Printf("%s\n", b)
	check(f.Close())
	f, err = os.OpenFile("/out/a/b/c", os.O_RDWR, 0)
	check(err)
	_, err = f.WriteAt([]byte("XY"), 1)
	check(err)
	_, err = f.ReadAt(b, 8)
	check(err)
	fmt.Printf("%s\n", b)
	check(f.Truncate(11))
	check(f.Close())
	check(os.Rename("/out/a/b/c", "/out/a/d"))
	check(os.Remove("/out/a/b"))
	for i := range 300 {
		check(os.WriteFile(fmt.Sprintf("/tmp/file-with-a-rather-long-name-%03d", i), nil, 0o600))
	}
	entries, err := os.ReadDir("/tmp")
	check(err)
	fmt.Println(len(entries))
	_, err = os.ReadFile("/out/missing")
	fmt.Println(errors.Is(err, os.ErrNotExist))
	check(os.RemoveAll("/tmp/file-with-a-rather-long-name-000"))
	b, err = os.ReadFile("/out/a/d")
	check(err)
	fmt.Printf("%s\n", b)
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "guest:", err)
	os.Exit(99)
}
