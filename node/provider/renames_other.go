//go:build !linux

package provider

// renameWatch stands for the kernel's notice of renames, which only Linux is asked for. Elsewhere a checkpoint is
// taken when its files have been still for a while.
type renameWatch struct{}

func watchRenames(string) *renameWatch { return nil }

func (*renameWatch) look()               {}
func (*renameWatch) renamed(string) bool { return false }
func (*renameWatch) reset()              {}
func (*renameWatch) close()              {}
