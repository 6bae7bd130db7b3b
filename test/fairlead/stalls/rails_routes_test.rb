# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Which pattern of a router's is that of a path.
  class RailsRoutesTest < Test
    def test_the_format_is_no_part_of_it
      assert_equal "/articles/:slug", fit("/articles/:slug(.:format)", "/articles/my-first-post")
      assert_equal "/articles/:slug", fit("/articles/:slug(.:format)", "/articles/my-first-post.json")
      assert_equal "/articles/new", fit("/articles/new(.:format)", "/articles/new.json")
      assert_equal "/", fit("/", "/")
    end

    def test_optional_parts_are_there_if_the_path_has_them
      spec = "(/:locale)/articles(/:year(/:month))(.:format)"

      assert_equal "/articles", fit(spec, "/articles")
      assert_equal "/:locale/articles", fit(spec, "/de/articles")
      assert_equal "/:locale/articles/:year/:month", fit(spec, "/de/articles/2024/12")
      assert_equal "/articles/:year", fit(spec, "/articles/2024")
    end

    def test_an_engine_knows_the_end_of_the_path
      assert_equal "/blog/posts/:slug", fit("/posts/:slug(.:format)", "/blog/posts/splices")
      assert_equal "/tenants/:id/blog/posts/:slug", fit("/posts/:slug(.:format)", "/tenants/12/blog/posts/splices")
    end

    def test_what_does_not_fit_or_stands_for_any_number_of_parts_is_left_alone
      assert_nil fit("/articles/:slug(.:format)", "/other/splices")
      assert_nil fit("/articles/:slug(.:format)", "/articles")
      assert_nil fit("/sidekiq", "/sidekiq/queues/default")
      assert_nil fit("/files/*path", "/files/a/b")
      assert_nil fit("(/:a)(/:b)(/:c)(/:d)(/:e)(/:f)", "/a/b")
    end

    def test_a_path_may_be_of_any_bytes
      assert_equal "/articles/:slug", fit("/articles/:slug(.:format)", "/articles/gr\xC3\xB6\xFF".b)
      assert_equal "/articles/:slug", fit("/articles/:slug(.:format)", "/articles/gr\xFF")
      assert_equal "/größe/:id".b, fit("/größe/:id(.:format)", "/gr\xC3\xB6\xC3\x9Fe/4".b)
      assert_equal "/größe/:id".b, fit("/:id(.:format)", "/gr\xC3\xB6\xC3\x9Fe/4".b)
    end

    private

    def fit(spec, path) = RailsRoutes.fit(spec, path)
  end
end
