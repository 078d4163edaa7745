package codex
import ("testing";"time";"math/rand";"strings";"belay/checkpoint";"path/filepath")
func TestZZ(t *testing.T){
 var seeds []string
 for _, name := range []string{"captured/int-midtool.final", "generated/0.171-compacted"} {
  seeds=append(seeds, strings.SplitAfter(read(t, filepath.Join("testdata","reader",filepath.FromSlash(name)+".jsonl")), "\n")...)
 }
 dir:=t.TempDir()
 for i:=0;i<300;i++{
  s:=[]byte(seeds[rand.Intn(len(seeds))])
  if len(s)==0 {continue}
  for k:=0;k<3;k++{ s[rand.Intn(len(s))]=byte(rand.Intn(256)) }
  st:=time.Now()
  p:=filepath.Join(dir,nameOf(threadOne)); write(t,p,string(s))
  w:=time.Since(st)
  r:=openTranscript(srcOf(p))
  all(t,r,"",checkpoint.ReadOptions{Whole:true,Final:true})
  r.Close()
  if d:=time.Since(st); d>20*time.Millisecond { t.Logf("%v (write %v) %q",d,w,s[:60]) }
 }
}
