package api

import (
	"encoding"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// document returns the OpenAPI 3.1 document of the routes. The schemas come from the Go types' JSON tags, so that they
// cannot tell something else than what is sent.
func document(routes []route) ([]byte, error) {
	g := schemas{defs: map[string]any{}}
	paths := map[string]map[string]any{}
	failure := map[string]any{"description": "what went wrong", "content": content("application/json", g.of(reflect.TypeFor[errorBody]()))}
	for _, rt := range routes {
		op := map[string]any{"operationId": rt.id, "summary": rt.summary}
		var params []any
		for _, segment := range strings.Split(rt.path, "/") {
			if name, ok := strings.CutPrefix(segment, "{"); ok {
				params = append(params, param(strings.TrimSuffix(name, "}"), "path"))
			}
		}
		for _, name := range rt.query {
			params = append(params, param(name, "query"))
		}
		if params != nil {
			op["parameters"] = params
		}
		if rt.body != nil {
			op["requestBody"] = map[string]any{"content": content("application/json", g.of(reflect.TypeOf(rt.body)))}
		}
		ok := map[string]any{"description": rt.summary}
		schema := g.of(reflect.TypeOf(rt.result))
		switch rt.form {
		case formJSON:
			ok["content"] = content("application/json", schema)
		case formLines:
			ok["description"] = rt.summary + " One document per line; an error after the first line is the last line."
			ok["content"] = content("application/x-ndjson", schema)
		case formText:
			ok["content"] = content("text/plain", map[string]any{"type": "string"})
		case formBytes:
			ok["content"] = content("application/octet-stream", map[string]any{"type": "string", "format": "binary"})
		default:
			return nil, fmt.Errorf("route %s: no form", rt.id)
		}
		op["responses"] = map[string]any{"200": ok, "default": failure}
		if paths[rt.path] == nil {
			paths[rt.path] = map[string]any{}
		}
		paths[rt.path][strings.ToLower(rt.method)] = op
	}
	if g.err != nil {
		return nil, g.err
	}
	return json.MarshalIndent(map[string]any{
		"openapi":    "3.1.0",
		"info":       map[string]any{"title": "Local API of a Lacuna peer", "version": "1"},
		"paths":      paths,
		"components": map[string]any{"schemas": g.defs},
	}, "", " ")
}

func content(kind string, schema any) map[string]any {
	return map[string]any{kind: map[string]any{"schema": schema}}
}

func param(name, in string) map[string]any {
	return map[string]any{"name": name, "in": in, "required": in == "path", "schema": map[string]any{"type": "string"}}
}

// schemas makes schemas of types; those of structs are kept by name.
type schemas struct {
	defs map[string]any
	err  error
}

// of returns the schema of t.
func (g *schemas) of(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		inner := g.of(t.Elem())
		if kind, ok := inner["type"].(string); ok {
			inner["type"] = []string{kind, "null"}
			return inner
		}
		return map[string]any{"anyOf": []any{inner, map[string]any{"type": "null"}}}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 && !t.Elem().Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
			return map[string]any{"type": "string", "contentEncoding": "base64"}
		}
		return map[string]any{"type": "array", "items": g.of(t.Elem())}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return map[string]any{"type": "object"}
		}
		return map[string]any{"type": "object", "additionalProperties": g.of(t.Elem())}
	case reflect.Struct:
		return g.object(t)
	}
	g.err = fmt.Errorf("type %s has no form in JSON here", t)
	return nil
}

// object returns a reference to the schema of a struct.
func (g *schemas) object(t reflect.Type) map[string]any {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if pkg := path.Base(t.PkgPath()); pkg != "api" {
		name = pkg + "." + name
	}
	ref := map[string]any{"$ref": "#/components/schemas/" + name}
	if g.defs[name] != nil {
		return ref
	}
	g.defs[name] = map[string]any{} // a type may hold itself
	props, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "-" || !f.IsExported():
			continue
		case tag == "":
			g.err = fmt.Errorf("%s.%s has no name in JSON, which is %s", t, f.Name, strconv.Quote(string(f.Tag)))
			continue
		}
		props[tag] = g.of(f.Type)
		if !strings.Contains(options, "omit") {
			required = append(required, tag)
		}
	}
	g.defs[name] = map[string]any{"type": "object", "properties": props, "required": required}
	return ref
}
