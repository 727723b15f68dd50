package api_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/api"
)

type operation struct {
	OperationID string `json:"operationId"`
	Parameters  []struct{ Name, In string }
	RequestBody *struct{}
	Responses   map[string]struct {
		Content map[string]struct{ Schema map[string]any }
	}
}

type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]map[string]any }
}

func served(t *testing.T) (*api.Server, document) {
	t.Helper()
	s, err := api.New(api.Options{Backend: fake(func(string) {}), Gatherer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	var doc document
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return s, doc
}

// TestEveryDocumentedRouteIsServed asks for each route of the document and holds the answer against its schema.
func TestEveryDocumentedRouteIsServed(t *testing.T) {
	s, doc := served(t)
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			t.Run(method+" "+path, func(t *testing.T) {
				if op.OperationID == "" || ids[op.OperationID] {
					t.Errorf("operationId %q is missing or used twice", op.OperationID)
				}
				ids[op.OperationID] = true
				target := strings.NewReplacer("{ref}", "abc", "{peer}", attest.Key{1}.String()).Replace(path)
				if strings.HasPrefix(path, "/v1/receipts") {
					target += "?lease=abc"
				}
				body := ""
				if op.RequestBody != nil {
					body = `{}`
				}
				switch op.OperationID {
				case "join":
					body = `{"targets":["lacuna1x"]}`
				case "submit":
					body = `{"spec":{"wasm":"m","tier":"gold"}}`
				}
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, httptest.NewRequest(strings.ToUpper(method), target, strings.NewReader(body)))
				if w.Code != 200 {
					t.Fatalf("status %d: %s", w.Code, w.Body)
				}
				kind, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
				answer, ok := op.Responses["200"].Content[kind]
				if !ok {
					t.Fatalf("answers %s, documented are %v", kind, op.Responses["200"].Content)
				}
				if kind != "application/json" && kind != "application/x-ndjson" {
					return
				}
				for line := range strings.Lines(w.Body.String()) {
					if path == "/openapi.json" {
						line = w.Body.String()
					}
					var v any
					if err := json.Unmarshal([]byte(line), &v); err != nil {
						t.Fatal(err)
					}
					doc.hold(t, "answer", answer.Schema, v)
					if path == "/openapi.json" {
						break
					}
				}
			})
		}
	}
}

// hold checks that v has the form of the schema, and no field besides.
func (d document) hold(t *testing.T, at string, schema map[string]any, v any) {
	t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		d.hold(t, at, d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")], v)
		return
	}
	if anyOf, ok := schema["anyOf"].([]any); ok {
		if v != nil {
			d.hold(t, at, anyOf[0].(map[string]any), v)
		}
		return
	}
	kinds, ok := schema["type"].([]any)
	if !ok {
		kinds = []any{schema["type"]}
	}
	kind := map[bool]any{true: "boolean", false: "null"}[false]
	switch x := v.(type) {
	case bool:
		kind = "boolean"
	case string:
		kind = "string"
	case float64:
		kind = "integer"
		if kinds[0] == "number" {
			kind = "number"
		}
	case []any:
		kind = "array"
		for _, e := range x {
			d.hold(t, at+"[]", schema["items"].(map[string]any), e)
		}
	case map[string]any:
		kind = "object"
		props, _ := schema["properties"].(map[string]any)
		rest, _ := schema["additionalProperties"].(map[string]any)
		for name, e := range x {
			if p, ok := props[name].(map[string]any); ok {
				d.hold(t, at+"."+name, p, e)
			} else if rest != nil {
				d.hold(t, at+"."+name, rest, e)
			} else if props != nil {
				t.Errorf("%s.%s is sent but not documented", at, name)
			}
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := x[name.(string)]; !ok {
				t.Errorf("%s.%s is documented as always there, but is missing", at, name)
			}
		}
	}
	for _, k := range kinds {
		// A nil list or map of Go is null; the backends of this test leave many unset.
		if k == kind || kind == "null" && (k == "array" || k == "object") {
			return
		}
	}
	t.Errorf("%s is a %v, documented as %v", at, kind, kinds)
}

// TestEveryServedRouteIsDocumented holds the patterns in the source against the document, and parameters with it.
func TestEveryServedRouteIsDocumented(t *testing.T) {
	_, doc := served(t)
	source, err := os.ReadFile("routes.go")
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`\{(get|post), "([^"]+)", "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		want[m[1]+" "+m[2]+" "+m[3]] = true
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			got[method+" "+path+" "+op.OperationID] = true
			for _, p := range op.Parameters {
				if p.In == "path" && !strings.Contains(path, "{"+p.Name+"}") {
					t.Errorf("%s documents %s in the path", path, p.Name)
				}
			}
			if strings.Count(path, "{") > len(op.Parameters) {
				t.Errorf("%s does not document its path", path)
			}
		}
	}
	if len(want) < 25 {
		t.Fatalf("found %d routes in routes.go; its form has changed", len(want))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("document (-served +documented):\n%s", d)
	}
}
