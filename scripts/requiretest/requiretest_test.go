package requiretest_test

import (
	"runtime"
	"testing"

	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

// recorder notes how a test would have ended.
type recorder struct {
	testing.TB
	end string
}

func (r *recorder) Helper()               {}
func (r *recorder) Fatalf(string, ...any) { r.end = "failed"; runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)  { r.end = "skipped"; runtime.Goexit() }

func TestSkip(t *testing.T) {
	for _, tt := range []struct{ name, require, want string }{
		{"not named", "", "skipped"},
		{"another named", "docker,chromium", "skipped"},
		{"named", "docker,netns", "failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("LACUNA_REQUIRE", tt.require)
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				requiretest.Skip(r, "netns", "the system allows none")
			}()
			<-done
			if r.end != tt.want {
				t.Errorf("the test %s, want %s", r.end, tt.want)
			}
		})
	}
}
